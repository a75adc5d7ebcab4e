#!/usr/bin/env bash
# Builds the program and measures it against Python. Accepts the options of bench/bench.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh --parity
cmake --preset release >/dev/null
cmake --build --preset release --target trainer bench_step bench_ranks bench_input bench_checkpoint bench_peak
exec .deps/venv/bin/python bench/bench.py "$@"
