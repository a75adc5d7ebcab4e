#!/usr/bin/env python3
"""Finds the fastest settings of the Python peers on this machine and writes them to bench/results/, where bench.py reads them: threads,
channels_last, bfloat16, the optimizer's implementation and the allocator setting for the training step, and the formulation of the
batched augmentation for each dtype and layout. Each setting runs in its own process; the processes of a stage take turns."""

import argparse
import itertools
import json
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness
from bench import BATCH_SIZE, DEFAULT_NETWORKS, LAYOUTS, layout_name
from data import AUGMENTATIONS, read_training_set


def step_stages():
    """Measures first all combinations of the settings that affect convolutions; then, with the best one, those of update and memory."""
    cores = harness.num_cores()
    # Not measured without hardware support, because emulated bfloat16 is many times slower.
    bfloat16 = [False, True] if harness.cpu.has_fast_bfloat16() else [False]
    return [
        {"threads": sorted({1, cores}), "channels_last": [False, True], "bfloat16": bfloat16},
        {"optimizer": ["loop", "foreach", "fused"], "allocator": [False, True]},
    ]


def sweep_step(network, options):
    best = {"optimizer": "fused", "allocator": True}
    entries = []
    for choices in step_stages():
        settings = [{**best, **dict(zip(choices, values))} for values in itertools.product(*choices.values())]
        workers = [step_worker(network, setting) for setting in settings]
        contenders = harness.alternate(workers, options.rounds, options.seconds)["contenders"]
        stage = [{"settings": s, **figures(c)} for s, c in zip(settings, contenders)]
        for entry in stage:
            print(f"{network}: {entry['settings']} {entry['median']:,.0f} images/s, {entry['memory_mb']:,.0f} MB", flush=True)
        stage.sort(key=lambda entry: -entry["median"])
        best = stage[0]["settings"]
        entries = stage + entries
    return entries


def step_worker(network, setting):
    chosen = {"network": network, "batch_size": BATCH_SIZE[network], "input": "resident", **setting}
    allocator = chosen.pop("allocator")
    return harness.python_worker("/".join(map(str, setting.values())), "step.py", chosen, BATCH_SIZE[network], allocator)


def figures(contender):
    return {key: contender[key] for key in ("median", "min", "max", "values", "memory_mb")}


def sweep_input(dtype, channels_last, options):
    common = {"dtype": dtype, "channels_last": channels_last, "data": options.data}
    workers = [harness.python_worker(name, "input.py", {**common, "pipeline": name}, 128, allocator=True) for name in AUGMENTATIONS]
    contenders = harness.alternate(workers, options.rounds, options.seconds)["contenders"]
    entries = [{"pipeline": c["name"], **figures(c)} for c in contenders]
    for entry in entries:
        rate = f"{entry['median']:,.0f} images/s, {entry['memory_mb']:,.0f} MB"
        print(f"{layout_name(dtype, channels_last)}: {entry['pipeline']} {rate}", flush=True)
    return sorted(entries, key=lambda entry: -entry["median"])


def check_augmentations(data):
    """Checks that all formulations give the same batch for the same random numbers, so that they are comparable."""
    images = read_training_set(data)[0][:500]
    for dtype, channels_last in LAYOUTS:
        batches = []
        for augmentation in AUGMENTATIONS.values():
            torch.manual_seed(0)
            batches.append(augmentation(images, getattr(torch, dtype), channels_last)(torch.arange(len(images))))
        assert all(torch.equal(batches[0], batch) for batch in batches[1:]), "the augmentations differ"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*", choices=BATCH_SIZE, default=DEFAULT_NETWORKS)
    parser.add_argument("--data", default=harness.default_data())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="duration of one measurement")
    parser.add_argument("--output", type=pathlib.Path, default=harness.sweep_file())
    options = parser.parse_args()
    check_augmentations(options.data)
    report = {"machine": harness.machine(), "rounds": options.rounds, "seconds": options.seconds}
    report["step"] = {network: sweep_step(network, options) for network in options.networks}
    report["input"] = {layout_name(*layout): sweep_input(*layout, options) for layout in LAYOUTS}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
