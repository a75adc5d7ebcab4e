"""Logs a run to the MLflow server whose address is in the environment variable MLFLOW_TRACKING_URI; for
`logging.command: [python3, examples/mlflow_log.py]`."""

import json
import sys

import mlflow

with mlflow.start_run():
    for event in map(json.loads, sys.stdin):
        if event["event"] in ("train", "validation"):
            numbers = {key: value for key, value in event.items() if isinstance(value, (int, float)) and key not in ("time", "step")}
            mlflow.log_metrics({f"{event['event']}/{key}": value for key, value in numbers.items()}, step=event["step"])
