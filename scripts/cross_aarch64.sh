#!/usr/bin/env bash
# Builds the program for 64-bit ARM on an x86-64 Debian, and tries it in an emulator.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case "${1:-}" in
  -h | --help)
    cat <<'TEXT'
usage: scripts/cross_aarch64.sh [TARGET ...]
Builds the targets (default: the program, libtrainer_predict and the tests of the kernels) in build/aarch64, with Debian's packages for
ARM and the torch package of PyPI, and runs there, in the emulator: the tests of the kernels, a training, predictions and exports.
It needs the packages mmdebstrap, g++-aarch64-linux-gnu and qemu-user-static, about 4 GB and hours.
TEXT
    exit 0
    ;;
esac
targets=("$@")
tests=(base_test data_test nn_test)
if [ "${#targets[@]}" -eq 0 ]; then targets=(trainer trainer_predict_library "${tests[@]}"); fi
folder=$root/build/aarch64
sysroot=$folder/root
site=$folder/site

make_sysroot() {
  if [ -e "$sysroot/usr/include/hwy" ]; then return; fi
  rm -rf "$sysroot"
  mmdebstrap --arch=arm64 --variant=extract "--include=libc6-dev,libstdc++-12-dev,$(IFS=,; echo "${library_packages[*]},${image_packages[*]}")" \
    bookworm "$sysroot" "$(debian_mirror)" 2>"$folder/sysroot.log"
  local link target
  find "$sysroot" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
    target=$(readlink "$link")
    ln -sfnr "$sysroot$target" "$link"
  done
  # Installed packages would have these links of Debian's alternatives.
  for target in blas lapack; do ln -sf "$target/lib$target.so.3" "$sysroot/usr/lib/aarch64-linux-gnu/"; done
}

# LibTorch reads these files, and crashes without those of an ARM processor; the emulator prefers them to the machine's.
describe_processor() {
  local cpu=$sysroot/sys/devices/system/cpu i name
  mkdir -p "$sysroot/proc" "$cpu/cpu0/regs/identification" "$cpu/cpu1/regs/identification"
  for i in 0 1; do
    printf '%s\t: %s\n' processor $i BogoMIPS 50.00 \
      Features "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs" \
      "CPU implementer" 0x41 "CPU architecture" 8 "CPU variant" 0x3 "CPU part" 0xd0c "CPU revision" 1
    echo
    echo 0x00000000413fd0c1 >"$cpu/cpu$i/regs/identification/midr_el1"
  done >"$sysroot/proc/cpuinfo"
  for name in possible present online; do echo 0-1 >"$cpu/$name"; done
}

fetch_torch() {
  if [ -e "$site/torch/lib/libtorch_cpu.so" ]; then return; fi
  local list platform platforms=()
  list=$root/scripts/requirements/libtorch-$(libtorch_versions | tail -n 1)/torch.txt
  for platform in manylinux2014 manylinux_2_17 manylinux_2_24 manylinux_2_25 manylinux_2_26 manylinux_2_27 manylinux_2_28; do
    platforms+=(--platform "${platform}_aarch64")
  done
  "$root/.deps/venv/bin/python" -I -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --no-cache-dir \
    --only-binary=:all: "${platforms[@]}" --target "$site" -r "$list"
}

configure_for_arm() {
  cmake -S "$root" -B "$folder/build" -G Ninja -D CMAKE_BUILD_TYPE=Release -D "CMAKE_TOOLCHAIN_FILE=$root/cmake/aarch64.cmake" \
    -D "TRAINER_SYSROOT=$sysroot" -D "TRAINER_TORCH_DIR=$site/torch" >&2
}

emulate() { QEMU_CPU=neoverse-n1 qemu-aarch64-static -L "$sysroot" "$folder/build/bin/$1" "${@:2}"; }

try_program() {
  local run=$folder/run
  rm -rf "$run"
  cd "$root"
  emulate trainer --config configs/quickstart.yaml --run-dir "$run" training.epochs=1 training.overfit_batches=2 dataloader.global_batch_size=20 validation.batch_size=20 runtime.threads=1
  emulate trainer predict --checkpoint "$run" runtime.threads=1 tests/golden/images/mode_rgb.png tests/golden/images/baseline_420.jpg
  emulate trainer export --checkpoint "$run" --output "$run/network.onnx"
  aarch64-linux-gnu-gcc --sysroot="$sysroot" -Iinclude/trainer -Iinclude examples/predict/predict.c -L"$folder/build/bin" -ltrainer_predict \
    -Wl,-rpath,"$folder/build/bin" -Wl,--allow-shlib-undefined -o "$folder/build/bin/predict"
  emulate predict "$run" tests/golden/images/mode_rgb.png
}

mkdir -p "$folder"
stage "packages for ARM" make_sysroot
describe_processor
stage "LibTorch for ARM" fetch_torch
stage configure configure_for_arm
stage build ninja -C "$folder/build" -j "$(num_build_jobs)" "${targets[@]}"
for name in "${tests[@]}"; do stage "$name" emulate "$name" --gtest_brief=1; done
stage "training, predictions, exports" try_program
