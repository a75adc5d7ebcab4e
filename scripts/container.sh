#!/usr/bin/env bash
# Builds the container image from docker/Dockerfile with Docker, or with buildah if no Docker engine responds.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
usage: scripts/container.sh [--cuda] [--tag NAME]
  --cuda      for NVIDIA GPUs
  --tag NAME  name of the image; default: trainer, or trainer:cuda
environment:
  TRAINER_WITH_OPENCV=OFF  build without support for image files
With buildah, run this script as root. If no registry can be reached, debootstrap then creates the Debian base image. pip and ccache in the
build use the certificates and the cache that they use outside.
TEXT
}

fail() { echo "container: $*" >&2; exit 1; }
cuda='' tag=''
while [ "$#" -gt 0 ]; do
  case "$1" in
    --cuda) cuda=ON ;;
    --tag) tag=${2:?--tag needs a name} && shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; echo "container: unknown argument '$1'" >&2; exit 2 ;;
  esac
  shift
done
tag=${tag:-trainer${cuda:+:cuda}}
base=docker.io/library/debian:bookworm-slim
arguments=(--file "$root/docker/Dockerfile" --tag "$tag" --build-arg "CUDA=$cuda"
  --build-arg "CI=${CI:-}" --build-arg "TRAINER_WITH_OPENCV=${TRAINER_WITH_OPENCV:-ON}"
  --build-arg "REVISION=$(git -C "$root" describe --always --dirty --abbrev=12 --exclude='*')")

# Makes a base image like debian:bookworm-slim from apt's mirror.
make_base() {
  local container mirror
  command -v debootstrap >/dev/null || fail "$base cannot be pulled, and debootstrap is missing; install it with: apt-get install debootstrap"
  mirror=$(debian_mirror) || mirror=
  debootstrap --variant=minbase bookworm "$work/base" ${mirror:+"$mirror"} >"$work/base.log" 2>&1 || { tail -n 5 "$work/base.log" >&2; return 1; }
  chroot "$work/base" apt-get clean
  rm -rf "$work/base"/var/lib/apt/lists/* "$work/base"/usr/share/{doc,man,locale}
  container=$(buildah from scratch)
  buildah add -q "$container" "$work/base" / >/dev/null
  buildah config --cmd /bin/bash --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
  buildah commit -q --rm "$container" "$base" >/dev/null
}

find_base() {
  if buildah inspect --type image "$base" >/dev/null 2>&1 || buildah pull -q "$base" >/dev/null 2>&1; then return; fi
  make_base
}

build_with_buildah() {
  local certificates cache
  certificates=${PIP_CERT:-$(python3 -m pip config get global.cert 2>/dev/null || true)}
  if [ -n "$certificates" ]; then
    arguments+=(--volume "$certificates:/run/pip-certificates.crt:ro" --build-arg PIP_CERT=/run/pip-certificates.crt)
  fi
  if cache=$(ccache --get-config cache_dir 2>/dev/null); then
    mkdir -p "$cache"
    arguments+=(--volume "$cache:/root/.cache/ccache")
  fi
  if [ -n "${PIP_INDEX_URL:-}" ]; then arguments+=(--build-arg PIP_INDEX_URL); fi
  # Only the docker format supports a health check; the OCI format does not.
  buildah build --pull=never --format docker --network=host --build-arg "BASE=$base" "${arguments[@]}" "$root" >&2
}

build_with_docker() { docker build "${arguments[@]}" "$root" >&2; }

if docker info >/dev/null 2>&1; then
  stage image build_with_docker
  docker image inspect --format '{{.Size}}' "$tag" | awk -v tag="$tag" '{ printf "%s: %.0f MB\n", tag, $1 / 1e6 }'
  exit 0
fi
command -v buildah >/dev/null || fail "no Docker engine responds, and buildah is missing; install it with: apt-get install buildah"
# The isolation "chroot", the default of this script, needs no container runtime.
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
work=$(mktemp -d "${TMPDIR:-/tmp}/trainer-container-XXXXXX")
on_exit() { rm -rf --one-file-system "$work"; }
stage base find_base
stage image build_with_buildah
buildah images --json "$tag" | python3 -c 'import json, sys; i = json.load(sys.stdin)[0]; print(i["names"][0], i["size"])'
