#!/usr/bin/env python3
"""Trains on the same images from CIFAR-10's binary files, from a folder of PNG files, and from a packed data set with and without --raw,
and compares all losses and accuracies. Prints the accuracies; fails unless all are equal."""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy
from PIL import Image

import harness
from harness import ROOT

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
NORMALIZE = "normalize: {mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616]}"
# The resize only declares the size of the images, which all are 32 x 32 already.
TRAIN = f"dataset.train_transforms=[resize: {{size: [32, 32]}}, random_crop: {{size: 32, padding: 4}}, random_horizontal_flip, {NORMALIZE}]"
VALIDATION = f"dataset.validation_transforms=[resize: {{size: [32, 32]}}, {NORMALIZE}]"


def read_records(files, count):
    """The first `count` records, sorted by class like a folder of images."""
    records = numpy.concatenate([numpy.fromfile(file, numpy.uint8).reshape(-1, 3073) for file in files])[:count]
    return records[numpy.argsort(records[:, 0], kind="stable")]


def write_sources(folder, data, num_train, num_validation):
    parts = {"train": read_records(sorted(data.glob("data_batch_*.bin")), num_train),
             "val": read_records([data / "test_batch.bin"], num_validation)}
    binary = folder / "binary" / "cifar-10-batches-bin"
    binary.mkdir(parents=True)
    for number, part in enumerate(numpy.array_split(parts["train"], 5), 1):
        part.tofile(binary / f"data_batch_{number}.bin")
    parts["val"].tofile(binary / "test_batch.bin")
    for name, records in parts.items():
        for index, record in enumerate(records):
            path = folder / "images" / name / CLASSES[record[0]] / f"{index:05}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(record[1:].reshape(3, 32, 32).transpose(1, 2, 0)).save(path)


def run(command):
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise SystemExit(result.stderr)


def results_of(run_dir):
    events = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    keys = ("event", "epoch", "step", "loss", "top1", "top5", "lr")
    return [{key: event[key] for key in keys if key in event} for event in events if event["event"] in ("train", "validation")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", help="folder of our programs")
    parser.add_argument("--data", type=pathlib.Path, default=harness.default_data(), help="folder of the CIFAR-10 files (default: %(default)s)")
    parser.add_argument("--train", type=int, default=20000, help="training images")
    parser.add_argument("--validation", type=int, default=2000, help="validation images")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_sources(folder, options.data / "cifar-10-batches-bin", options.train, options.validation)
        trainer = options.bin / "trainer"
        config = ["--config", ROOT / "configs" / "cifar10_resnet20.yaml"]
        from_folder = [f"dataset={{name: image_folder, root: {folder / 'images'}}}"]
        sources = {"binary files": [f"dataset={{name: cifar10, root: {folder / 'binary'}}}"], "PNG files": from_folder}
        for title, flags in (("LMDB", []), ("LMDB, raw", ["--raw"])):
            packed = folder / title.replace(", ", "_")
            run([trainer, "data", "pack", *config, *from_folder, TRAIN, VALIDATION, "--output", packed, *flags])
            sources[title] = [f"dataset={{name: lmdb, root: {packed}}}"]
        results = {}
        for title, settings in sources.items():
            run_dir = folder / "runs" / title.replace(", ", "_")
            run([trainer, *config, "--run-dir", run_dir, *settings, TRAIN, VALIDATION, f"training.epochs={options.epochs}"])
            results[title] = results_of(run_dir)
            print(f"{title}: top1 {[event['top1'] for event in results[title] if event['event'] == 'validation']}", flush=True)
    if any(result != results["binary files"] for result in results.values()):
        raise SystemExit("the losses or accuracies of the sources differ")
    print(f"all {len(results['binary files'])} lines of metrics are equal")


if __name__ == "__main__":
    main()
