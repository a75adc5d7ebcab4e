#!/usr/bin/env python3
"""Compares the speed of training steps on a GPU with Python on the same LibTorch: eager, with CUDA graphs, and compiled. README.md explains
the measurements and the output."""

import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from bench import first_step
from harness import PEERS, ROOT, Worker, add_ratios, summary


class Case(NamedTuple):
    title: str
    network: str
    stem: str
    batch_size: int
    size: int  # height and width of the images
    compiles: bool = False  # whether to measure torch.compile too, which takes a minute
    has_peer: bool = True  # whether peers/gpu_networks.py has the network
    overrides: tuple = ()


CASES = [
    Case("ResNet-18 x 128, 32 px", "resnet18", "cifar", 128, 32, compiles=True),
    Case("WRN-28-10 x 128, 32 px", "wide_resnet", "", 128, 32, compiles=True),
    Case("ResNet-50 x 128, 224 px", "resnet50", "imagenet", 128, 224, compiles=True),
    Case("ResNet-18 x 1024, 32 px", "resnet18", "cifar", 1024, 32),
    Case("ResNet-50 x 128, 32 px", "resnet50", "cifar", 128, 32),
]
# Only ours, and only if --cases names them.
OWN_CASES = [
    Case("EfficientNet-B0 x 128, 224 px", "efficientnet_b0", "", 128, 224, has_peer=False),
    Case("ConvNeXt-T x 64, 224 px", "convnext_tiny", "", 64, 224, has_peer=False, overrides=("optimizer={name: adamw, lr: 0.001}",)),
    Case("ViT-B/16 x 64, 224 px", "vit_b_16", "", 64, 224, has_peer=False,
         overrides=("optimizer={name: adamw, lr: 0.001}", "model.image_size=224",
                    *(f"dataset.{part}_transforms=[resize: {{size: 224}}]" for part in ("train", "validation")))),
    Case("ResNet-18 x 128, 32 px, Muon", "resnet18", "cifar", 128, 32, has_peer=False, overrides=("optimizer={name: muon}",)),
]
# A small case to try the script on a CPU.
CPU_CASES = [Case("ResNet-18 x 4, 32 px", "resnet18", "cifar", 4, 32)]
# The time limit of one contender.
LIMIT_SECONDS = 240
# The largest allowed relative difference of losses in float64. Both sides use the same library, but it may choose algorithms that add in
# different orders. Three steps amplify these differences: in float32, by a factor of several thousand for ResNet-50.
LOSS_TOLERANCE = 1e-9


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", help="folder of our programs (default: %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="the Python to compare with (default: %(default)s)")
    parser.add_argument("--data", default=ROOT / "datasets" / "cifar10_sample", help="folder of CIFAR-10 files (default: %(default)s)")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("gpu_bench.json"), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.7, help="duration of one turn of one contender (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=8.5, help="start no new measurement after this time (default: %(default)s)")
    parser.add_argument("--cases", type=re.compile, help="a regular expression: measure only the cases whose whole title it matches, without "
                        "torch.compile and the start; also those that have no peer")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda",
                        help="cpu: only to try the script, with a small network and without graphs and compilation")
    return parser.parse_args()


class Bench:
    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + 60 * options.minutes
        self.on_gpu = options.device == "cuda"

    def left(self, seconds):
        return self.deadline - time.monotonic() > seconds

    def ours(self, case, *arguments):
        return [self.options.bin / "bench_step", "--network", case.network, "--batch-size", case.batch_size, "--size", case.size, "--data",
                self.options.data, *arguments, f"runtime.device={self.options.device}", *([f"model.stem={case.stem}"] if case.stem else []),
                *case.overrides]

    def peer(self, case, *arguments):
        return [self.options.python, PEERS / "gpu_step.py", "--network", case.network, "--stem", case.stem, "--batch-size", case.batch_size,
                "--size", case.size, "--device", self.options.device, *arguments]

    def printed_losses(self, argv):
        run = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        if run.returncode != 0:
            raise SystemExit(f"{argv[0]} ended with status {run.returncode}: {run.stderr.strip()[-500:]}")
        return [float(word) for word in run.stdout.split()]

    def losses(self, case):
        """The losses of three steps from the same weights with the same batches, which are small, because float64 needs much memory."""
        case = case._replace(batch_size=min(case.batch_size, 16))
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([str(word) for word in self.peer(case, "--write", folder)], check=True, timeout=LIMIT_SECONDS)
            ours = self.printed_losses(self.ours(case, "--losses", f"{folder}/batches.pt", f"model.init_from={folder}/weights.pt",
                                                 "amp.enabled=false", "runtime.dtype=float64"))
            theirs = self.printed_losses(self.peer(case, "--losses", folder))
        equal = len(ours) == len(theirs) == 3 and all(abs(a - b) <= LOSS_TOLERANCE * abs(b) for a, b in zip(ours, theirs))
        return {"ours": ours, "python": theirs, "tolerance": LOSS_TOLERANCE, "equal": equal}

    def contenders(self, case):
        """Yields the name and command of each contender."""
        autocast = ["--bfloat16"] if self.on_gpu else []
        ours = self.ours(case, "--input", "resident", f"amp.enabled={str(self.on_gpu).lower()}")
        yield "ours", ours
        if self.on_gpu:
            yield "ours, fused", [*ours, "runtime.fuse=on"]
            yield "ours, CUDA graph", [*ours, "runtime.cuda_graph=on"]
            yield "ours, fused, CUDA graph", [*ours, "runtime.cuda_graph=on", "runtime.fuse=on"]
        if not case.has_peer:
            return
        yield "Python, eager", self.peer(case, *autocast)
        if self.on_gpu:
            yield "Python, CUDA graph", self.peer(case, *autocast, "--mode", "graph")
        if self.on_gpu and case.compiles and not self.options.cases:
            yield "Python, compiled", self.peer(case, *autocast, "--mode", "compile")

    def start_workers(self, case, failures):
        workers = []
        for name, argv in self.contenders(case):
            if name == "Python, compiled" and not self.left(150):
                failures[name] = "skipped, because --minutes leaves too little time"
                continue
            try:
                # `timeout` ends a contender that hangs, so that reading its answer ends too.
                worker = Worker(name, ["timeout", "--kill-after=5", LIMIT_SECONDS, *argv], images_per_step=case.batch_size)
                worker.calibrate(self.options.seconds)
                workers.append(worker)
            except SystemExit as error:
                failures[name] = str(error)
        return workers

    def measure(self, case):
        failures = {}
        result = {"unit": "images/s", "failures": failures}
        if case.has_peer:
            result["losses"] = self.losses(case)
        workers = self.start_workers(case, failures)
        rates = {worker.name: [] for worker in workers}
        for number in range(self.options.rounds):
            for worker in workers if number % 2 == 0 else reversed(workers):
                rates[worker.name].append(worker.images_per_second())
        result["contenders"] = []
        for worker in workers:
            # Single steps, because a full queue would slow down the host.
            single = [worker.ask(1) for _ in range(10)]
            values = summary(rates[worker.name])
            step = worker.images_per_step / values["median"]
            worker.close()
            result["contenders"].append({
                "name": worker.name, **values, "steps_per_second": 1 / step, "host_share": statistics.median(a["queued"] for a in single) / step,
                "device_memory_mb": single[-1]["peak_memory"] / 2**20, "steps": worker.steps, **worker.command,
                "settings": worker.settings})
        if [worker.name for worker in workers][:1] == ["ours"] and losses_agree(result):
            add_ratios(result)
        return result

    def measure_start(self):
        """ResNet-18, batch 32, from the start of the process to the end of the first step."""
        values = {"ours": [], "Python, eager": []}
        for number in range(4):
            with tempfile.TemporaryDirectory() as folder:
                run_dir = pathlib.Path(folder) / "run"
                ours = [self.options.bin / "trainer", "--config", ROOT / "bench" / "start.yaml", f"runtime.device={self.options.device}",
                        "--run-dir", run_dir]
                peer = [self.options.python, PEERS / "gpu_start.py", self.options.device]
                seconds = {"ours": first_step(ours, False, run_dir)[0], "Python, eager": first_step(peer, False)[0]}
            if number > 0:  # the first round only reads the files into the page cache
                for name in values:
                    values[name].append(seconds[name])
        return add_ratios({"unit": "s", "contenders": [{"name": name, **summary(values[name])} for name in values]})


def machine():
    query = "name,driver_version,memory.total,clocks.max.sm,power.limit"
    try:
        gpu = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    except OSError:
        gpu = ""
    return {"gpu": gpu or "unknown", "kernel": platform.release(), "cores": len(os.sched_getaffinity(0)),
            "date": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


def python_facts(python):
    code = "import json, sys, torch; print(json.dumps([sys.version.split()[0], torch.__version__, torch.version.cuda, torch.cuda.is_available()]))"
    run = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{python} cannot import torch: {(run.stderr.strip().splitlines() or ['no message'])[-1]}")
    return dict(zip(("python", "torch", "cuda", "has_gpu"), json.loads(run.stdout)))


def losses_agree(result):
    """False only if both sides computed losses that differ."""
    return result.get("losses", {"equal": True})["equal"]


def print_result(title, result):
    print(f"{title} [{result['unit']}]")
    if not losses_agree(result):
        print(f"  the losses differ, so the figures are not compared: ours {result['losses']['ours']}, Python {result['losses']['python']}")
    for c in result["contenders"]:
        spread = "{median:,.2f} ({min:,.2f} - {max:,.2f})".format(**c)
        line = f"  {c['name']:24}{spread:>34}"
        if "host_share" in c:
            line += f"{c['steps_per_second']:>9.1f} steps/s{100 * c['host_share']:>6.0f} % host{c['device_memory_mb']:>9,.0f} MB"
        if "ratio" in c:
            line += "   our speed / theirs {median:.2f} ({min:.2f} - {max:.2f})".format(**c["ratio"])
        print(line)
    for name, text in result.get("failures", {}).items():
        print(f"  {name:24} {text}")
    sys.stdout.flush()


def main():
    options = parse_arguments()
    options.bin = options.bin.resolve()
    facts = python_facts(options.python)
    if options.device == "cuda" and not facts["has_gpu"]:
        print("no GPU: torch.cuda.is_available() is false; --device cpu only tries the script", file=sys.stderr)
        return 2
    bench = Bench(options)
    report = {"machine": {**machine(), **facts}, "rounds": options.rounds, "seconds": options.seconds, "results": {}}
    print(*(f"{key}: {value}" for key, value in report["machine"].items()), sep="\n")
    cases = CASES if bench.on_gpu else CPU_CASES
    if options.cases:
        cases = [case for case in [*CASES, *OWN_CASES] if options.cases.fullmatch(case.title)]
    parts = [(case.title, lambda case=case: bench.measure(case)) for case in cases]
    if not options.cases:
        parts.insert(1, ("process start to first step: ResNet-18 x 32, s", bench.measure_start))
    failed = False
    for title, measure in parts:
        if not bench.left(60):
            print(f"{title}: skipped, because --minutes leaves too little time")
            continue
        try:
            result = measure()
            print_result(title, result)
            failed = failed or "ours" in result.get("failures", {}) or not losses_agree(result)
        except (SystemExit, subprocess.SubprocessError) as error:
            result, failed = {"error": str(error)}, True
            print(f"{title}: {error}")
        report["results"][title] = result
        options.output.write_text(json.dumps(report, indent=1, default=str) + "\n")
    print(f"ratios are our speed relative to theirs in the same round; everything is in {options.output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
