#!/bin/sh
# Fails when a process of the run is stopped, or has used no CPU time for five seconds; ten failures in a row make a container unhealthy
# (docker/Dockerfile). The ranks themselves detect a rank that hangs while other threads of it run, and exit (distributed.hang_seconds).
set -eu

fail() {
  echo "unhealthy: $1"
  exit 1
}

# CPU time of a process in nanoseconds, summed over its threads.
used() { cat "/proc/$1"/task/*/schedstat 2>/dev/null | awk '{ sum += $1 } END { printf "%.0f", sum }'; }

looks=
for folder in /proc/[0-9]*; do
  if [ "$(readlink "$folder/exe")" != /opt/trainer/bin/trainer ]; then continue; fi
  process=${folder#/proc/}
  case $(sed -n 's/^State:[[:space:]]*//p' "$folder/status" 2>/dev/null) in
    [Tt]*) fail "process $process is stopped" ;;
  esac
  # The launcher is idle most of the time, so its CPU time is not checked.
  if [ "$(tr '\0' '\n' <"$folder/cmdline" 2>/dev/null | sed -n 2p)" != launch ]; then looks="$looks $process=$(used "$process")"; fi
done
sleep 5
for look in $looks; do
  process=${look%=*}
  if [ -e "/proc/$process" ] && [ "$(used "$process")" = "${look#*=}" ]; then fail "process $process has not run for 5 seconds"; fi
done
