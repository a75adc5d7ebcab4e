#!/usr/bin/env bash
# Runs the kit: see run.sh --help.
set -euo pipefail
command -v python3 >/dev/null || { echo "run.sh: python3 is missing" >&2; exit 2; }
exec python3 "$(dirname "${BASH_SOURCE[0]}")/run.py" "$@"
