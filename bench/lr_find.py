#!/usr/bin/env python3
"""Compares the suggestion of `trainer lr-find` with a grid of learning rates on three data sets: trains with each of the rates, and prints
the accuracies after the last epoch. This program draws two of the data sets. Takes half an hour on two idle cores. Completed runs in
build/lr_find are not repeated. --golden writes the losses of lr-find and the accuracies for a test. Exits with 1 if a suggestion is more
than 3 points below the best of the grid."""

import argparse
import json
import math
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "lr_find"
GRID = [0.003, 0.01, 0.03, 0.1, 0.3]
MOST_BELOW = 0.03  # largest allowed distance to the best of the grid; the same as in the test of the golden file
GOLDEN = ROOT / "tests" / "golden" / "lr_range_curves.json"


def draw(folder, seed, side, count, noise, classes, pixel):
    """Writes an image folder with `count` training images and 60 validation images per class. `pixel(rng, number)` returns the function
    that maps x and y to the three channels of an image of class `number`."""
    rng = random.Random(seed)
    for split, total in (("train", count), ("val", 60)):
        for number, name in enumerate(classes):
            files = folder / split / name
            files.mkdir(parents=True, exist_ok=True)
            for i in range(total):
                value = pixel(rng, number)
                channels = (channel for y in range(side) for x in range(side) for channel in value(x, y))
                pixels = bytes(min(255, max(0, int(channel + rng.gauss(0, noise)))) for channel in channels)
                (files / f"{i}.ppm").write_bytes(b"P6 %d %d 255\n" % (side, side) + pixels)


def stripes(rng, number):
    angle, width, phase, height = math.pi * number / 8 + rng.gauss(0, 0.12), rng.uniform(0.5, 1.2), rng.uniform(0, 6.3), rng.uniform(15, 60)
    base = [rng.randrange(60, 196) for _ in range(3)]

    def value(x, y):
        wave = height * math.sin(width * (x * math.cos(angle) + y * math.sin(angle)) + phase)
        return [channel + wave for channel in base]

    return value


OUTLINES = ["disc", "ring", "square", "frame", "cross", "triangle"]


def outline(rng, number):
    radius = rng.uniform(0.18, 0.35) * 32
    left, top = rng.uniform(radius, 32 - radius), rng.uniform(radius, 32 - radius)
    outside, inside = [[rng.randrange(256) for _ in range(3)] for _ in range(2)]

    def value(x, y):
        x, y = x - left, y - top
        distance, far, near = math.hypot(x, y), max(abs(x), abs(y)), min(abs(x), abs(y))
        is_inside = [distance < radius, 0.6 * radius < distance < radius, far < 0.85 * radius, 0.5 * radius < far < 0.85 * radius,
                     far < radius and near < 0.3 * radius, -radius < y < radius and abs(x) < (y + radius) / 2]
        return inside if is_inside[number] else outside

    return value


def experiment_of(trainer, name, *drawing):
    """The file that `trainer init` writes for a drawn data set; for stripes without mirroring, which would change their angle."""
    file = FOLDER / f"{name}.yaml"
    if not file.exists():
        draw(FOLDER / name, *drawing)
        subprocess.run([trainer, "init", "--data", FOLDER / name, "--output", file], check=True, stdout=subprocess.DEVNULL)
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if name != "stripes" or "random_horizontal_flip" not in line))
    return file


def experiments(trainer):
    """The file of each experiment, and settings that make it shorter."""
    return {"quickstart": (ROOT / "configs" / "quickstart.yaml", ["training.epochs=6"]),
            "stripes": (experiment_of(trainer, "stripes", 2, 24, 200, 30, [f"angle{i}" for i in range(8)], stripes), ["training.epochs=15"]),
            # With fewer epochs, the accuracy depends on the seed more than on the learning rate.
            "outlines": (experiment_of(trainer, "outlines", 1, 32, 250, 40, OUTLINES, outline), ["training.epochs=60"])}


def find(trainer, file, settings):
    return json.loads(subprocess.run([trainer, "lr-find", "--config", file, "--json", *settings], check=True, stdout=subprocess.PIPE).stdout)


def train(trainer, name, file, settings, lr):
    folder = FOLDER / "runs" / f"{name}_{lr}"
    if not (folder / "summary.json").exists():
        subprocess.run([trainer, "--config", file, "--run-dir", folder, f"optimizer.lr={lr}", "validation.every_epochs=1000", "-q", *settings],
                       check=True, stdout=subprocess.DEVNULL)
    events = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [event["top1"] for event in events if event["event"] == "validation"][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", help="folder of our programs")
    parser.add_argument("--golden", action="store_true", help=f"write {GOLDEN.relative_to(ROOT)}")
    parser.add_argument("settings", nargs="*", default=[], help="key=value of all experiments")
    options = parser.parse_args()
    trainer = options.bin / "trainer"
    FOLDER.mkdir(parents=True, exist_ok=True)
    print("| experiment | " + " | ".join(map(str, GRID)) + " | suggestion | its accuracy | below the best |\n" + "|---" * (len(GRID) + 4) + "|")
    curves, poor = [], []
    for name, (file, settings) in experiments(trainer).items():
        settings = [*settings, "amp.enabled=false", "runtime.threads=1", *options.settings]
        test = find(trainer, file, settings)
        scores = {lr: train(trainer, name, file, settings, lr) for lr in GRID}
        best = max(scores.values())
        lr = None if test["suggestion"] is None else float(f"{test['suggestion']:.2g}")
        own = None if lr is None else train(trainer, name, file, settings, lr)
        cells = ["none", "", ""] if lr is None else [f"{lr:.2g}", f"{100 * own:.1f} %", f"{100 * (best - own):.1f}"]
        print("| " + " | ".join([name, *(f"{100 * score:.1f}" for score in scores.values()), *cells]) + " |", flush=True)
        if lr is not None and own < best - MOST_BELOW:
            poor.append(f"{name} ({100 * (best - own):.1f})")
        curves.append({"experiment": name, "suggestion": lr, "accuracy": own, "best_of_grid": best,
                       "losses": [round(point["loss"], 4) for point in test["points"]]})
    if options.golden:
        GOLDEN.write_text("[\n" + ",\n".join(map(json.dumps, curves)) + "\n]\n")
    if poor:
        sys.exit(f"lr_find.py: the suggestion is more than {100 * MOST_BELOW:.0f} points below the best of the grid: {', '.join(poor)}")


if __name__ == "__main__":
    main()
