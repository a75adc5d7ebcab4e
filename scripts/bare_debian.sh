#!/usr/bin/env bash
# Tests launch.sh and test.sh as in the README in a bare Debian: a fresh root folder with only git and ca-certificates, in which a clone of
# HEAD is set up, built, run and tested. Prints the time and disk space of each step.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
usage: scripts/bare_debian.sh [--suite NAME] [--compiler NAME] [--torch VERSION|newest|cpu] [--without-opencv] [--keep]
  --suite NAME      the Debian release: bookworm (12, the default) or trixie (13)
  --compiler NAME   use this compiler instead of the release's g++, such as g++-13 or clang++-16
  --torch VERSION   use this LibTorch instead of the pinned one: a version on PyPI; newest: the newest on PyPI; cpu: the pinned version
                    in a folder with lib/ and include/, like an unpacked LibTorch for CPUs
  --without-opencv  set TRAINER_WITH_OPENCV=OFF
  --keep            keep the root folder instead of removing it at the end
Needs root, debootstrap and 8 GB below TMPDIR (default /tmp). This machine's settings for downloading packages are also used inside:
apt's settings (and its sources, if the release is the same), pip's settings, and certificates in /usr/local/share/ca-certificates.
TEXT
}

keep=false opencv=ON suite=bookworm compiler='' torch=''
arguments=("$@")
while [ $# -gt 0 ]; do
  case "$1" in
    --suite | --compiler | --torch)
      [ $# -gt 1 ] || { usage >&2; echo "bare_debian: $1 needs a value" >&2; exit 2; }
      declare "${1#--}=$2"
      shift
      ;;
    --without-opencv) opencv=OFF ;;
    --keep) keep=true ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; echo "bare_debian: unknown argument '$1'" >&2; exit 2 ;;
  esac
  shift
done
fail() { echo "bare_debian: $*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || fail "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || fail "debootstrap is missing; install it with: apt-get install debootstrap"
# Re-executes in a new mount namespace: the mounts below end with this process, even when it is killed.
if [ -z "${BARE_DEBIAN_UNSHARED:-}" ]; then BARE_DEBIAN_UNSHARED=1 exec unshare --mount "$0" "${arguments[@]}"; fi

base=$(mktemp -d "${TMPDIR:-/tmp}/bare-debian-XXXXXX")
chmod 755 "$base"
report=()

clean_up() {
  local mount
  for mount in proc sys dev; do
    if mountpoint -q "$base/$mount"; then umount --recursive --lazy "$base/$mount"; fi
  done
  if $keep; then echo "bare_debian: the root folder is $base" >&2; else rm -rf --one-file-system "$base"; fi
}
trap clean_up EXIT

# step NAME COMMAND...: runs the command and records its time and disk space.
step() {
  local name=$1 start=$SECONDS before
  shift
  before=$(du -smx "$base" | cut -f 1)
  echo "== $name" >&2
  "$@" || fail "$name: failed"
  report+=("$(printf '%-16s %5d s  %6d MB more on disk' "$name" $((SECONDS - start)) $(($(du -smx "$base" | cut -f 1) - before)))")
}

# inside COMMAND...: runs the command in the root folder, with a clean environment.
inside() {
  local environment=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "TRAINER_WITH_OPENCV=$opencv") name
  if [ -n "$compiler" ]; then environment+=("CXX=$compiler"); fi
  if [ -n "$torch" ]; then environment+=(TRAINER_TORCH_DIR=/root/libtorch); fi
  while read -r name; do environment+=("$name=${!name}"); done < <(compgen -e PIP_)
  env -i "${environment[@]}" chroot "$base" "$@"
}

# shellcheck disable=SC2016  # expanded inside
in_clone() { inside bash -c 'cd /root/trainer && exec "$@"' bash "$@"; }

same_release() { grep -qx "VERSION_CODENAME=$suite" /etc/os-release; }

make_base() {
  local mirror
  mirror=$(debian_mirror) || mirror=
  debootstrap --variant=minbase --include=git,ca-certificates "$suite" "$base" ${mirror:+"$mirror"} >"$base.log" 2>&1 ||
    { tail -n 5 "$base.log" >&2; return 1; }
  rm -f "$base.log"
}

use_site_settings() {
  local item items=(apt.conf.d)
  if same_release; then
    rm -rf "$base"/etc/apt/sources.list*
    items+=(sources.list sources.list.d keyrings)
  fi
  for item in "${items[@]}"; do
    if [ -e "/etc/apt/$item" ]; then cp -rL "/etc/apt/$item" "$base/etc/apt/"; fi
  done
  for item in /etc/pip.conf "${PIP_CERT:-}"; do
    if [ -n "$item" ] && [ -e "$item" ] && ! [ -e "$base$item" ]; then install -D -m 644 "$item" "$base$item"; fi
  done
  cp -L /etc/hosts /etc/resolv.conf "$base/etc/"
  if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    cp /usr/local/share/ca-certificates/*.crt "$base/usr/local/share/ca-certificates/"
    inside update-ca-certificates >/dev/null 2>&1
  fi
}

install_packages() { inside apt-get -qq update && inside env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null; }

install_compiler() {
  local package=${compiler/clang++/clang}
  install_packages "$package"
}

# Installs the libraries and headers of a torch wheel, and the two CUDA libraries that libtorch_cpu loads on every machine.
install_torch() {
  local version=$torch needed site
  if [ "$torch" = cpu ]; then version=$(sed -n 's/^torch==//p' "$base"/root/trainer/scripts/requirements/libtorch-*/torch.txt | sort -V | tail -n 1); fi
  install_packages python3-venv
  inside python3 -m venv /root/torch
  inside /root/torch/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps \
    "torch$([ "$version" = newest ] || echo "==$version")"
  needed=$(inside /root/torch/bin/python -c 'import importlib.metadata as m, re
print(*("cuda-toolkit[cudart,cupti]" + r.split(";")[0].split("]")[1] for r in m.requires("torch") if r.startswith("cuda-toolkit[")))')
  [ -n "$needed" ] || fail "this torch package does not require cuda-toolkit; add the packages that its libtorch_cpu loads to install_torch"
  inside /root/torch/bin/python -m pip list --disable-pip-version-check 2>/dev/null | grep '^torch ' >&2
  inside /root/torch/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir "$needed"
  site=$(inside bash -c 'echo /root/torch/lib/python3*/site-packages')
  if [ "$torch" != cpu ]; then
    inside ln -s "$site/torch" /root/libtorch
    return
  fi
  # shellcheck disable=SC2016  # expanded inside
  inside bash -c 'mkdir -p /root/libtorch/lib && cp -r "$1/torch/include" /root/libtorch/ &&
    cp "$1"/torch/lib/lib{c10,torch_cpu,torch,gomp*}.so* "$1"/nvidia/*/lib/lib{cupti,cudart}.so.* /root/libtorch/lib/ && rm -rf /root/torch' bash "$site"
}

step "bare $suite" make_base
use_site_settings
mount -t proc proc "$base/proc"
mount --rbind /sys "$base/sys"
mount --rbind /dev "$base/dev"
step "clone" git clone --quiet --no-hardlinks "$root" "$base/root/trainer"
if [ -n "$compiler" ]; then step "$compiler" install_compiler; fi
if [ -n "$torch" ]; then step "LibTorch $torch" install_torch; fi
step "launch.sh" in_clone scripts/launch.sh --config configs/digits.yaml
step "test.sh" in_clone scripts/test.sh
printf '%s\n' "" "$suite${compiler:+, $compiler}${torch:+, LibTorch $torch}, TRAINER_WITH_OPENCV=$opencv" "${report[@]}"
