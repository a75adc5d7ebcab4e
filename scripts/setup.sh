#!/usr/bin/env bash
# Installs what is needed to build and run `trainer` on Debian 12 or newer: distribution packages, and LibTorch in .deps/.
# Safe to call again, even after an interruption: it installs only what is missing.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mapfile -t versions < <(libtorch_versions)

usage() {
  cat <<TEXT
usage: scripts/setup.sh [--cuda] [--parity] [--dev]
  --cuda    also the NVIDIA libraries and headers (about 1.9 GB to download); automatic if an NVIDIA driver is found
  --parity  --cuda, and a small Python environment that imports the same LibTorch (for tests/parity and bench/)
  --dev     also clang-format, clang-tidy, clang and shellcheck, for scripts/check.sh, and the programs for the tests of Slurm,
            MPI, containers, bundles, the kit for GPUs, pages in a browser and the example in C#
environment:
  TRAINER_LIBTORCH=VERSION   one of ${versions[*]}; without it the newest. Replaces another version that is installed
  TRAINER_TORCH_DIR=/path    use this LibTorch folder (or torch package folder) and download none
  TRAINER_WITH_OPENCV=OFF    build without support for image files; does not install OpenCV, libjpeg and libtiff
TEXT
}

cuda=false parity=false dev=false
for argument in "$@"; do
  case "$argument" in
    --cuda) cuda=true ;;
    --parity) cuda=true parity=true ;;
    --dev) dev=true ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; echo "setup: unknown argument '$argument'" >&2; exit 2 ;;
  esac
done
if [ -e /proc/driver/nvidia/version ]; then cuda=true; fi

deps="$root/.deps"
python="$deps/venv/bin/python"
# Exists while the Python environment is being changed.
unfinished="$deps/unfinished"
mkdir -p "$deps/done"

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$1" "$2" >&2; exit 1; }

# Prints the given packages that are not installed.
missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' || true)
  comm -23 <(printf '%s\n' "$@" | sort -u) <(sort -u <<<"$installed")
}

install_packages() {
  local packages=(g++ cmake ninja-build ccache mold git ca-certificates python3-venv "${library_packages[@]}")
  if [ "${TRAINER_WITH_OPENCV:-ON}" != OFF ]; then packages+=("${image_packages[@]}"); fi
  if $dev; then
    packages+=(clang-format clang-tidy clang libomp-14-dev shellcheck doxygen iproute2 iptables slurm-wlm openmpi-bin mpich buildah podman crun debootstrap tini patchelf zstd zsh fish mandoc
      mono-mcs mono-runtime libmono-system-core4.0-cil)
    # Ubuntu offers Chromium only as a snap.
    if grep -qx ID=debian /etc/os-release; then packages+=(chromium-headless-shell); fi
  fi
  local missing as_root=()
  mapfile -t missing < <(missing_packages "${packages[@]}")
  if [ "${#missing[@]}" -eq 0 ]; then return; fi
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "these packages are missing: ${missing[*]}" \
      "become root and run: apt-get install --no-install-recommends ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} distribution packages: ${missing[*]}"
  local log="$deps/apt.log" start=$SECONDS
  # dpkg refuses everything else until it has finished an interrupted installation. apt-get install waits up to ten minutes for another
  # program that is installing packages.
  if ! { "${as_root[@]}" dpkg --configure -a && "${as_root[@]}" apt-get update &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -o DPkg::Lock::Timeout=600 -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    fail "the distribution packages could not be installed" "read $log; when the network is the cause, run this script again"
  fi
  say "$(sed -n 's/^After this operation, \(.*\) of additional disk space will be used\./\1 on disk,/p; s/^Need to get \(.*\) of archives\./\1 downloaded,/p' "$log" |
    tr '\n' ' ')$((SECONDS - start)) s"
}

make_python_environment() {
  if [ -x "$python" ]; then return; fi
  # Prefers Debian's Python, because later calls find it too and the wheels must match the interpreter.
  local system_python=/usr/bin/python3
  [ -x "$system_python" ] || system_python=python3
  "$system_python" -I -m venv "$deps/venv" || fail "no Python environment could be created in $deps/venv" "install python3-venv"
}

# fetch LIST SIZE: installs the wheels of requirements/LIST.txt; repeats that only when the file changes.
fetch() {
  local list="$root/scripts/requirements/$1.txt" name=${1##*/} stamp
  stamp="$deps/done/$name-$(cksum <"$list" | tr ' ' -)"
  if [ -e "$stamp" ]; then return; fi
  touch "$unfinished"
  make_python_environment
  say "downloading $1 ($2): $(grep -v '^#' "$list" | tr '\n' ' ')"
  local start=$SECONDS quiet=() code=0
  if ! [ -t 2 ]; then quiet=(--quiet); fi
  "$python" -I -m pip install "${quiet[@]}" --disable-pip-version-check --no-deps --no-compile --no-cache-dir -r "$list" >&2 || code=$?
  if [ "$code" -ne 0 ]; then
    # The previous installation still works, unless pip was killed.
    if [ "$code" -lt 128 ]; then rm "$unfinished"; fi
    fail "the wheels of scripts/requirements/$1.txt could not be downloaded" "check the network and the disk ($(df -h --output=avail "$deps" | tail -n 1 | tr -d ' ') free), then run this script again"
  fi
  rm -f "$deps/done/$name-"*
  touch "$stamp"
  rm "$unfinished"
  say "$1: $((SECONDS - start)) s; .deps is now $(du -sh "$deps" | cut -f 1)"
}

lock_checkout
install_packages
if [ -n "${TRAINER_TORCH_DIR:-}" ]; then
  [ -e "$TRAINER_TORCH_DIR/lib/libtorch_cpu.so" ] || fail "TRAINER_TORCH_DIR=$TRAINER_TORCH_DIR has no lib/libtorch_cpu.so" \
    "set it to the folder with lib/ and include/ (an unpacked LibTorch, or .../site-packages/torch)"
  if $parity; then fail "--parity and TRAINER_TORCH_DIR exclude each other" "the comparison needs the wheel that this script downloads: unset TRAINER_TORCH_DIR"; fi
  exit 0
fi
if [ -e "$unfinished" ]; then
  say "an earlier set-up was interrupted: the Python environment is created again"
  rm -rf "$deps/venv" "$deps/done"
  mkdir "$deps/done"
  rm "$unfinished"
fi
version=${TRAINER_LIBTORCH:-${versions[-1]}}
[ -d "$root/scripts/requirements/libtorch-$version" ] || fail "TRAINER_LIBTORCH=$version is not a version that the project is tested with" \
  "set it to one of ${versions[*]}"
fetch "libtorch-$version/torch" "about 510 MB"
torch=$(cd "$deps" && echo venv/lib/python3*/site-packages/torch)
# Nothing is written if nothing is missing, because the checkout may be read-only.
if [ "$(readlink "$deps/torch")" != "$torch" ]; then ln -sfn "$torch" "$deps/torch"; fi
if $cuda; then fetch "libtorch-$version/cuda" "about 1.9 GB"; fi
if $parity; then
  fetch parity "about 90 MB"
  fetch "libtorch-$version/torchvision" "about 8 MB"
fi
