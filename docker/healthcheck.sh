#!/bin/sh
# Fails when a process of the run is stopped, or when nothing has run in it for five seconds; ten times in a row make a container
# unhealthy (docker/Dockerfile). A rank that hangs while others of its threads live is found by the ranks themselves, who end
# (distributed.hang_seconds): what is left to see from here is what can no longer look after itself.
set -eu

fail() {
  echo "unhealthy: $1"
  exit 1
}

# Nanoseconds on a processor, of all threads together.
used() { cat "/proc/$1"/task/*/schedstat 2>/dev/null | awk '{ sum += $1 } END { printf "%.0f", sum }'; }

looks=
for folder in /proc/[0-9]*; do
  if [ "$(readlink "$folder/exe")" != /opt/trainer/bin/trainer ]; then continue; fi
  process=${folder#/proc/}
  case $(sed -n 's/^State:[[:space:]]*//p' "$folder/status" 2>/dev/null) in
    [Tt]*) fail "process $process is stopped" ;;
  esac
  # The launcher sleeps until something happens.
  if [ "$(tr '\0' '\n' <"$folder/cmdline" 2>/dev/null | sed -n 2p)" != launch ]; then looks="$looks $process=$(used "$process")"; fi
done
sleep 5
for look in $looks; do
  process=${look%=*}
  if [ -e "/proc/$process" ] && [ "$(used "$process")" = "${look#*=}" ]; then fail "process $process has not run for 5 seconds"; fi
done
