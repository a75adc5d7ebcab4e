#!/bin/sh
# `trainer launch` unless a command is named, as scripts/launch.sh. It becomes the launcher, so that signals reach that.
set -eu
case "${1:-}" in
  --version) ;;
  -*) set -- launch "$@" ;;
esac
exec trainer "$@"
