#!/usr/bin/env python3
"""Measures the memory of the data in a training with several ranks on this host: the resident and the proportional set size (PSS) of the
mapped files on each rank, and whether the memory of rank 0 grows over many batches."""

import argparse
import collections
import pathlib
import re
import subprocess
import tempfile
import time

import harness
from harness import ROOT


def pss_of_files(pid, folder):
    """The MB of the process's mapped files below `folder`: resident and proportional set size."""
    sizes = collections.Counter()
    inside = False
    for line in open(f"/proc/{pid}/smaps"):
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = str(folder) in line
        elif inside and line.startswith(("Rss:", "Pss:")):
            sizes[line[:3]] += int(line.split()[1]) / 1024
    return sizes["Rss"], sizes["Pss"]


def private_mb(pid):
    """The MB of resident anonymous memory, which belongs to no file."""
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("RssAnon")) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", help="folder of our programs")
    parser.add_argument("--data", type=pathlib.Path, default=harness.default_data(), help="folder of the CIFAR-10 files (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batches", type=int, default=12000, help="number of batches of each rank")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "run")
        command = [options.bin / "trainer", "launch", "--nproc-per-node", options.ranks, "--config", ROOT / "configs" / "quickstart.yaml",
                   "--run-dir", log, f"dataset.root={options.data}", "dataset.train_transforms=[random_crop: {size: 32, padding: 4}]",
                   "dataset.validation_transforms=[]", "model={name: demo_conv}", "optimizer={name: sgd, lr: 0.001}", "dataloader={batch_size: 16}",
                   "training={epochs: 1000}", "validation.every_epochs=1000", "checkpoint={every_epochs: 1000}", "logging.every_steps=100",
                   "distributed.sync_batch_norm=false", "runtime.device=cpu", "amp.enabled=false"]
        launcher = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            memory = {}
            while not memory or max(memory) < options.batches:
                time.sleep(0.5)
                if launcher.poll() is not None:
                    raise SystemExit(f"`trainer launch` ended with exit code {launcher.returncode}")
                lines = pathlib.Path(log, "metrics.jsonl").read_text().splitlines() if pathlib.Path(log, "metrics.jsonl").exists() else []
                steps = [int(match[1]) for line in lines if '"train"' in line and (match := re.search(r'"step": ?(\d+)', line))]
                ranks = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True).stdout.split()
                if steps and steps[-1] >= 1000 and steps[-1] // 1000 * 1000 not in memory:
                    memory[steps[-1] // 1000 * 1000] = private_mb(ranks[0])
            print("| rank | resident of the data files, MB | proportional share, MB |\n|---|---|---|")
            for rank, pid in enumerate(ranks):
                print("| {} | {:.0f} | {:.0f} |".format(rank, *pss_of_files(pid, options.data)))
            print("\nrank 0's other memory, MB, by batches:", ", ".join(f"{step}: {mb:.1f}" for step, mb in memory.items()))
        finally:
            launcher.terminate()
            launcher.wait()


if __name__ == "__main__":
    main()
