#!/usr/bin/env bash
# Sets up, builds everything and runs the tests.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

parity=()
case "${1:-}" in
  -h | --help)
    cat <<'TEXT'
usage: scripts/test.sh [--parity] [CTEST ARGUMENT ...]
  --parity   first install the Python packages for the parity tests (scripts/setup.sh --parity); without these packages, the
             parity tests are left out
Arguments of ctest choose tests, for example: -L unit (labels: unit, e2e, parity, systems, fake_gpu, gpu), -R config, -N (list only).
TEXT
    exit 0
    ;;
  --parity)
    parity=(--parity)
    shift
    ;;
esac

stage set-up set_up "${parity[@]}"
stage configure configure
stage build build_targets
stage tests run_tests "$@"
