#!/usr/bin/env bash
# Runs unit tests under a sanitizer. LibTorch itself is not built with the sanitizer.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
usage: scripts/sanitize.sh asan|tsan [MODULE ...]
Builds unit tests with the address and undefined behaviour sanitizers, or with the thread sanitizer, and runs them.
  MODULE   only the tests of this module (distributed, data, ...); default: all
TEXT
}

case "${1:-}" in
  asan | tsan) preset=$1 ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; echo "sanitize: name the sanitizer, asan or tsan" >&2; exit 2 ;;
esac

# The thread sanitizer of g++ 12 does not start if the kernel randomizes addresses by more than 28 bits.
no_randomize=$((0x40000))
if [ "$preset" = tsan ] && [ "$(cat /proc/sys/vm/mmap_rnd_bits)" -gt 28 ] && (((0x$(cat /proc/self/personality) & no_randomize) == 0)); then
  exec setarch --addr-no-randomize "$0" "$@"
fi
shift

# One test requests more memory than the machine has.
export ASAN_OPTIONS=allocator_may_return_null=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export LSAN_OPTIONS="suppressions=$root/scripts/lsan.supp:print_suppressions=0"
export TSAN_OPTIONS="ignore_noninstrumented_modules=1"

targets=("${@/%/_test}")
chosen=(-L unit)
if [ $# -gt 0 ]; then chosen=(-R "^unit\.($(IFS='|' && echo "$*"))\$"); fi
stage set-up set_up --dev
stage configure configure
stage "$preset build" build_targets "${targets[@]}"
# LibTorch uses the threads of libgomp, whose synchronisation the sanitizer cannot see. LLVM's OpenMP has the same functions, and its tool
# Archer reports the synchronisation to the sanitizer.
llvm=/usr/lib/llvm-14/lib
if [ "$preset" = tsan ]; then export LD_PRELOAD=$llvm/libomp.so.5 OMP_TOOL_LIBRARIES=$llvm/libarcher.so OMP_NUM_THREADS=4; fi
# The sanitizers' dlopen does not search the folder in which the program looks for its modules.
LD_LIBRARY_PATH=$(build_folder)/bin
export LD_LIBRARY_PATH
stage "$preset tests" run_tests "${chosen[@]}"
