#!/usr/bin/env bash
# Tests under a sanitizer. LibTorch itself is not built with it.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
usage: scripts/sanitize.sh asan|tsan [CTEST ARGUMENT ...]
Builds with the address and undefined behaviour sanitizers, or with the thread sanitizer, and runs the unit tests.
Arguments of ctest choose among them, for example: -R unit.distributed
TEXT
}

case "${1:-}" in
  asan | tsan) preset=$1 ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; echo "sanitize: which sanitizer: asan or tsan?" >&2; exit 2 ;;
esac

# The thread sanitizer of g++ 12 does not start where the kernel spreads mappings wider than this.
no_randomize=$((0x40000))
if [ "$preset" = tsan ] && [ "$(cat /proc/sys/vm/mmap_rnd_bits)" -gt 28 ] && (((0x$(cat /proc/self/personality) & no_randomize) == 0)); then
  exec setarch --addr-no-randomize "$0" "$@"
fi
shift

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
# LibTorch's own threads are not seen when they wait for each other: what happens inside it is left out, and it gets no threads to spare.
export TSAN_OPTIONS="ignore_noninstrumented_modules=1 suppressions=$root/scripts/tsan.supp"
if [ "$preset" = tsan ]; then export OMP_NUM_THREADS=1; fi

stage set-up set_up
stage configure configure
stage "$preset build" build_targets
stage "$preset tests" run_tests -L unit "$@"
