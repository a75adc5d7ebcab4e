#!/bin/sh
# Runs `trainer launch` unless a command is given, as scripts/launch.sh does. exec, so that signals reach the launcher.
set -eu
case "${1:-}" in
  --version) ;;
  -*) set -- launch "$@" ;;
esac
exec trainer "$@"
