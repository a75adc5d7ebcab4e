#!/usr/bin/env bash
# Measures training steps on a GPU against Python: bench/gpu.sh --help. Also part of the kit of scripts/gpu_kit.sh.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The Python of this repository's environment, or the system's.
python="$folder/../.deps/venv/bin/python"
[ -x "$python" ] || python=python3
exec "$python" "$folder/gpu.py" "$@"
