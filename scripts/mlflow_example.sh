#!/usr/bin/env bash
# Trains a small network with examples/mlflow_log.py as its logging.command, and compares the metrics on an MLflow server with the run's
# metrics.jsonl. MLflow is installed from PyPI into a temporary environment; the server listens only on 127.0.0.1.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ $# -gt 0 ]; then
  echo "usage: scripts/mlflow_example.sh" >&2
  if [ "$1" = --help ] || [ "$1" = -h ]; then exit 0; else exit 2; fi
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/mlflow-example-XXXXXX")
server=
on_exit() {
  if [ -n "$server" ]; then
    kill -- "-$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$work"
}

install_mlflow() {
  python3 -m venv "$work/venv"
  "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check mlflow >&2
}

start_server() {
  local port
  port=$("$work/venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  export MLFLOW_TRACKING_URI="http://127.0.0.1:$port"
  # In its own process group, because it starts other processes.
  setsid "$work/venv/bin/mlflow" server --host 127.0.0.1 --port "$port" --workers 1 --backend-store-uri "sqlite:///$work/mlflow.db" \
    --artifacts-destination "$work/artifacts" >"$work/server.log" 2>&1 &
  server=$!
  for _ in $(seq 120); do
    if "$work/venv/bin/python" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "/health")' "$MLFLOW_TRACKING_URI" \
      2>/dev/null; then return; fi
    sleep 1
  done
  cat "$work/server.log" >&2
  return 1
}

train() {
  (cd "$root" && PATH="$work/venv/bin:$PATH" "$(build_folder)/bin/trainer" --config configs/demo_linear.yaml --run-dir "$work/run" \
    'logging.command=[python3, examples/mlflow_log.py]')
}

compare() {
  "$work/venv/bin/python" - "$work/run/metrics.jsonl" <<'PYTHON'
import json
import sys

from mlflow.tracking import MlflowClient

expected = {}
for event in map(json.loads, open(sys.argv[1])):
    if event["event"] in ("train", "validation"):
        for key, value in event.items():
            if key not in ("event", "time", "step"):
                expected.setdefault(f"{event['event']}/{key}", []).append((event["step"], float(value)))
assert len(expected) > 5, sorted(expected)
client = MlflowClient()
(run,) = client.search_runs(["0"])
assert run.info.status == "FINISHED", run.info
found = {name: [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)] for name in run.data.metrics}
found = {name: sorted(values) for name, values in found.items()}
assert found == expected, (found, expected)
print(f"MLflow has the {sum(map(len, found.values()))} values of {len(found)} metrics of {sys.argv[1]}")
PYTHON
}

stage set-up set_up
stage configure configure
stage build build_targets trainer
stage "MLflow" install_mlflow
stage "server" start_server
stage "training" train
stage "comparison" compare
