#!/usr/bin/env bash
# Fuzzes a reader of checkpoint files.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
usage: scripts/fuzz.sh pytorch_file|safetensors [SECONDS]
Builds the fuzzer with clang and the address and undefined behaviour sanitizers, and runs it for SECONDS (600 by default).
It begins with tests/fuzz/corpus and saves new inputs in build/fuzz/corpus; an input that fails is written to build/fuzz.
TEXT
}

case "${1:-}" in
  pytorch_file | safetensors) reader=$1 ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; echo "fuzz: name the reader, pytorch_file or safetensors" >&2; exit 2 ;;
esac
preset=fuzz
seconds=${2:-600}

stage set-up set_up --dev
stage configure configure
stage build build_targets "fuzz_$reader"
build=$(build_folder)
mkdir -p "$build/corpus/$reader"
# LibTorch is not built with the sanitizers, so AddressSanitizer does not see its changes to containers and would report false overflows.
export ASAN_OPTIONS=detect_container_overflow=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
stage "fuzz $reader" "$build/bin/fuzz_$reader" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
  -dict="$root/tests/fuzz/$reader.dict" -artifact_prefix="$build/$reader-" "$build/corpus/$reader" "$root/tests/fuzz/corpus/$reader"
