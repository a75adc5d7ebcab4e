#!/usr/bin/env bash
# Collects what is needed to test and measure this program on a machine that has only a GPU, its driver, Python and a torch package.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
limit_mb=40

usage() {
  cat <<'TEXT'
usage: scripts/gpu_kit.sh [--output FOLDER]
  --output FOLDER  the folder of the kit, which is replaced; default: build/gpu_kit
Copy the folder to a machine with NVIDIA GPUs, x86-64, glibc 2.34 or newer and a torch package of the same version as here, up to the
patch release (TRAINER_LIBTORCH of scripts/setup.sh selects another), and call run.sh there; run.sh --help describes its arguments.
TEXT
}

fail() { echo "gpu_kit: $*" >&2; exit 1; }
output="$root/build/gpu_kit"
while [ "$#" -gt 0 ]; do
  case "$1" in
    --output) output=$(realpath -m -- "${2:?--output needs a folder}") && shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; echo "gpu_kit: unknown argument '$1'" >&2; exit 2 ;;
  esac
  shift
done
programs=(trainer gpu_test bench_step lost_rank)
modules=(libtrainer.so.0.1 libtrainer_cuda.so libtrainer_faults.so)

# path_of NAME: the path of a built program or module.
path_of() { find "$(build_folder)" -maxdepth 2 -name "$1" -type f -print -quit; }

# Prints the libraries that the kit needs, without LibTorch, which the torch package has.
libraries() {
  local name files=()
  for name in "${programs[@]}" "${modules[@]}"; do files+=("$(path_of "$name")"); done
  distribution_libraries "${files[@]}"
}

collect() {
  local name path temporary
  if [ -e "$output" ] && ! [ -e "$output/kit.json" ]; then fail "$output exists and is not a kit; name another folder"; fi
  rm -rf "$output"
  mkdir -p "$output"/{bin,tests,bench,datasets}
  for name in "${programs[@]}" "${modules[@]}"; do
    path=$(path_of "$name")
    [ -n "$path" ] || fail "$name was not built; cmake $(build_folder) prints whether this build has the CUDA module"
    install --strip "$path" "$output/bin/$name"
    # DT_RPATH (--force-rpath) also applies to the libraries that these libraries need. LibTorch is found by LD_LIBRARY_PATH, which run.sh
    # sets.
    # shellcheck disable=SC2016  # expanded by the loader
    patchelf --force-rpath --set-rpath '$ORIGIN:$ORIGIN/../lib' "$output/bin/$name"
  done
  temporary=$(mktemp -d)
  while read -r name path; do cp -L "$path" "$temporary/$name"; done < <(libraries)
  tar --directory "$temporary" --owner=0 --group=0 --sort=name -cJf "$output/lib.tar.xz" .
  rm -rf "$temporary"
  cp -r "$root"/configs "$output/"
  cp -r "$root"/datasets/cifar10_sample "$output/datasets/"
  cp -r "$root"/bench/{*.py,gpu.sh,start.yaml,peers} "$output/bench/"
  for name in gpu testing golden; do
    mkdir "$output/tests/$name"
    cp "$root/tests/$name"/*.py "$output/tests/$name/"
  done
  cp "$root"/scripts/gpu_kit/* "$output/"
  find "$output" -name __pycache__ -prune -exec rm -rf {} +
  python3 - "$output/kit.json" "$(torch_version)" \
    "$(git -C "$root" describe --always --dirty --abbrev=12 --exclude='*')" <<'TEXT'
import json, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(json.dumps({"torch": sys.argv[2], "commit": sys.argv[3]}, indent=1) + "\n")
TEXT
}

stage set-up set_up --cuda
command -v patchelf >/dev/null || fail "patchelf is missing; install it with: apt-get install patchelf"
stage configure configure
stage build build_targets "${programs[@]}" trainer_faults
stage collect collect
size=$(du -sm --apparent-size "$output" | cut -f 1)
[ "$size" -le "$limit_mb" ] || fail "$output has $size MB, more than the limit of $limit_mb MB (limit_mb in scripts/gpu_kit.sh)"
echo "$output: $size MB"
