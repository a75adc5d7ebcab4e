#!/usr/bin/env python3
"""Trains with each convolution algorithm and several seeds, and prints the accuracies of the last epochs, to check whether less exact
algorithms give equally accurate networks. Takes hours, but can be interrupted: runs in build/accuracy are continued, and results are kept
in results/accuracy.json and not repeated, even on another machine."""

import argparse
import json
import pathlib
import statistics
import subprocess
import time

import harness
from harness import ROOT

CHOICES = ["direct", "winograd2", "winograd4"]
RECORD = ROOT / "bench" / "results" / "accuracy.json"


def read_record():
    return json.loads(RECORD.read_text()) if RECORD.exists() else []


def key_of(options, convolution, seed):
    return {"config": options.config.name, "epochs": options.epochs, "settings": options.settings, "convolution": convolution, "seed": seed}


def find(options, convolution, seed):
    """The recorded run, or None."""
    key = key_of(options, convolution, seed)
    return next((run for run in read_record() if key.items() <= run.items()), None)


def train(options, convolution, seed):
    """Trains from the beginning, or from the point of an interruption, and records the result."""
    folder = ROOT / "build" / "accuracy" / f"{options.config.stem}_{options.epochs}_epochs" / convolution / f"seed_{seed}"
    command = [options.bin / "trainer", "--config", options.config, "--run-dir", folder, f"seed={seed}", f"training.epochs={options.epochs}",
               f"dataset.root={options.data}", f"runtime.convolution={convolution}", "amp.enabled=false", *options.settings]
    continued = folder.exists()
    print(" ".join(map(str, command)), flush=True)
    begin = time.monotonic()
    subprocess.run(command, check=True)
    # The duration of a continued run is unknown.
    duration = {} if continued else {"minutes": round((time.monotonic() - begin) / 60, 1)}
    events = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    top1 = [event["top1"] for event in events if event["event"] == "validation"][-1]
    machine = harness.machine()
    made_by = {name: machine[name] for name in ("commit", "cpu_kind", "date")}
    record = [*read_record(), {**key_of(options, convolution, seed), "top1": top1, **duration, **made_by}]
    RECORD.write_text("[\n" + ",\n".join(f"  {json.dumps(run)}" for run in record) + "\n]\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", help="folder of our programs")
    parser.add_argument("--config", type=pathlib.Path, default=ROOT / "configs" / "cifar10_resnet20.yaml")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 1 to N")
    parser.add_argument("--choices", nargs="+", choices=CHOICES, default=CHOICES)
    parser.add_argument("--data", default=harness.default_data(), help="folder of the CIFAR-10 files (default: %(default)s)")
    parser.add_argument("settings", nargs="*", help="key=value of the experiment")
    return parser.parse_args()


def main():
    options = parse_arguments()
    # Seed by seed, so that an interrupted measurement has the same seeds for each choice.
    for seed in range(1, options.seeds + 1):
        for convolution in options.choices:
            if find(options, convolution, seed) is None:
                train(options, convolution, seed)
    print("\n| runtime.convolution | top1 of each seed, % | mean | deviation |\n|---|---|---|---|")
    for convolution in options.choices:
        values = [100 * find(options, convolution, seed)["top1"] for seed in range(1, options.seeds + 1)]
        deviation = statistics.stdev(values) if len(values) > 1 else 0
        print(f"| {convolution} | {', '.join(f'{value:.2f}' for value in values)} | {statistics.mean(values):.2f} | {deviation:.2f} |")


if __name__ == "__main__":
    main()
