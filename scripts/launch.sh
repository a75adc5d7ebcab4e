#!/usr/bin/env bash
# Sets up, builds what has changed and runs `trainer`: `trainer launch` unless a command is given.
set -euo pipefail
# A script cannot print to a closed descriptor, and the next file that is opened gets its number; bash itself opens this script.
is_closed() { ! [ -e "/dev/fd/$1" ] || [ "/dev/fd/$1" -ef "${BASH_SOURCE[0]}" ]; }
if is_closed 0; then exec </dev/null; fi
closes_output=false
if is_closed 1; then closes_output=true && exec >/dev/null; fi
if is_closed 2; then exec 2>/dev/null; fi
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "$#" -eq 0 ] || [ "$1" = -h ] || [ "$1" = --help ]; then
  cat <<'TEXT'
usage: scripts/launch.sh [--nproc-per-node N|auto] [--gpus 0,2] [--] --config FILE [key=value ...]
       scripts/launch.sh COMMAND ...
Installs what is missing (scripts/setup.sh), builds what has changed and runs build/release/bin/trainer: the first form
as `trainer launch`, which starts one process per GPU, or two on the CPU, to train together; the second as `trainer COMMAND`.
`scripts/launch.sh launch --help` and `scripts/launch.sh train --help` show the arguments. Paths, including those in an
experiment file, are relative to the folder from which this script is called; the provided configurations need the
repository's root.
TEXT
  exit 0
fi

program="$(build_folder)/bin/trainer"
quiet_below=2
stage set-up set_up
stage configure configure
sources=("$root"/{CMakeLists.txt,cmake,src,models,datasets})
unchanged=false
if [ -e "$program" ] && [ -z "$(find "${sources[@]}" -newer "$program" -print -quit)" ]; then unchanged=true; fi
# No progress display if nothing has changed.
if $unchanged; then ninja_options=(--quiet); fi
# ninja writes to its folder even if nothing has changed, which is impossible in a read-only checkout.
if ! $unchanged || [ -w "$(build_folder)" ]; then stage build build_targets trainer; fi
case "$1" in
  --version) ;;
  -*) set -- launch "$@" ;;
esac
if $closes_output; then exec >&-; fi
exec "$program" "$@"
