#!/usr/bin/env python3
"""Compares the speed of the program and of Python on the same LibTorch, in turns, and prints medians, spread and ratios. README.md
explains the measurements and the output."""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import harness
from harness import ALLOCATOR, PEERS, ROOT, add_ratios, alternate, busy_cores, cpu, our_worker, peak_memory_mb, python_worker, summary

PARTS = ["step", "evaluation", "batches", "torchvision", "busy", "ranks", "input", "images", "packed", "augment", "workers", "checkpoint", "start"]
BATCH_SIZE = {"demo_conv": 64, "resnet20": 128, "resnet18": 128, "airbench": 500, "vgg16_bn": 128, "wide_resnet": 32}
# The other networks take minutes per round and are measured only on request.
DEFAULT_NETWORKS = ["demo_conv", "resnet20", "resnet18"]
# Batch sizes of the part "batches".
BATCHES = {"resnet20": [8, 16, 32, 64, 128, 256, 512], "resnet18": [4, 8, 16, 32, 64, 128]}
# Networks of torchvision, or timm, with their defaults, for the part "torchvision".
TORCHVISION = ["resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_b1", "efficientnet_b2",
               "efficientnet_b3", "efficientnet_v2_s", "regnet_y_400mf", "regnet_y_800mf", "regnet_y_1_6gf", "convnext_tiny", "convnext_small", "vit_b_16", "vit_s_16",
               "efficientnet_lite0", "densenet121", "densenet169", "shufflenet_v2_x1_0", "squeezenet1_1", "resnext50_32x4d", "wide_resnet50_2"]
TORCHVISION_SIZE = {"image": 224, "batch": 16}
# The other load of the machine for the part "busy": several trainings, each with Python's default settings.
BUSY = {"network": "demo_conv", "batch_size": 64, "trainings": 2}
LAYOUTS = [("float32", False), ("float32", True), ("bfloat16", True)]  # dtype, channels_last
PLAIN = {"input": "pil", "item": True}
RANKS = 2
RANK_BATCH_SIZE = 64
# Gradients are exchanged during the backward pass; a short pass, as with a small batch, hides less of the exchange. 25 MiB is the default.
OVERLAP = {"network": "resnet18", "batch_size": 16, "bucket_cap_mb": [4, 25], "steps": 5}
# Many short turns of this many seconds with and without failure detection, because the cost is small compared with the noise of one turn.
WATCH = {"seconds": 0.5, "turns_per_round": 10}

# `steps`: number of steps before each checkpoint, and after it while it is written.
CHECKPOINT = {"network": "resnet18", "batch_size": 32, "steps": 1, "per_turn": 4}


def layout_name(dtype, channels_last):
    return dtype + (" channels_last" if channels_last else "")


class BestPython:
    """The fastest settings in the sweep for this kind of CPU; without a sweep, all settings that can make it faster. With `float32`,
    autocast is off."""

    def __init__(self, float32):
        self.bfloat16 = cpu.has_fast_bfloat16() and not float32
        path = harness.sweep_file()
        self.sweep = json.loads(path.read_text()) if path.exists() else {"step": {}, "input": {}}
        self.source = str(path.relative_to(ROOT)) if path.exists() else "defaults (no sweep for this kind of CPU)"

    def step(self, network):
        found = self.sweep["step"].get(network)
        defaults = {"threads": harness.num_cores(), "channels_last": True, "optimizer": "fused", "allocator": True}
        settings = found[0]["settings"] if found else {**defaults, "bfloat16": self.bfloat16}
        return {**settings, "bfloat16": settings["bfloat16"] and self.bfloat16}

    def augmentation(self, dtype, channels_last):
        """The fastest augmentation that keeps uint8 images."""
        found = self.sweep["input"].get(layout_name(dtype, channels_last))
        if found:
            return next(entry["pipeline"] for entry in found if entry["pipeline"] != "normalized")
        return "rows" if channels_last else "pixels"


def convolutions(best, network):
    """The values of runtime.convolution to measure. They have no effect on demo_conv; with bfloat16 the processor decides which layers
    gain, so only the default is useful."""
    return ["auto"] if best.bfloat16 or network == "demo_conv" else ["winograd2", "winograd4"]


def dtype_settings(options):
    return ["amp.enabled=false"] if options.float32 else []


def step_worker(options, network, source, *arguments, size=None):
    size = size or BATCH_SIZE[network]
    argv = [options.bin / "bench_step", "--network", network, "--batch-size", size, "--input", source, "--data", options.data]
    return our_worker("ours", [*argv, *arguments, *dtype_settings(options)], size)


def step_peer(options, best, network, source, size=None, **more):
    size = size or BATCH_SIZE[network]
    settings = best.step(network)
    allocator = settings.pop("allocator")
    chosen = {"network": network, "batch_size": size, "data": options.data, **settings, "input": source, **more}
    return python_worker("best Python", "step.py", chosen, size, allocator)


def measure_evaluation(options, best, network):
    for convolution in convolutions(best, network):
        workers = [step_worker(options, network, "resident", "--evaluate", f"runtime.convolution={convolution}")]
        workers.append(step_peer(options, best, network, "resident", evaluate=True))
        title = f"evaluation: {network} x {BATCH_SIZE[network]}, convolution {convolution}"
        yield title, alternate(workers, options.rounds, options.seconds)


def measure_step(options, best, network):
    """Two results: with ready batches in memory, and with input, from the data set's bytes to the update."""
    size = BATCH_SIZE[network]
    common = {"network": network, "batch_size": size, "data": options.data}
    settings = best.step(network)
    augmentation = best.augmentation("bfloat16" if settings["bfloat16"] else "float32", settings["channels_last"])
    for convolution in convolutions(best, network):
        ours = step_worker(options, network, "resident", f"runtime.convolution={convolution}")
        workers = [ours, step_peer(options, best, network, "resident")]
        yield f"training step: {network} x {size}, convolution {convolution}", alternate(workers, options.rounds, options.seconds)
    workers = [step_worker(options, network, "pipeline"), step_peer(options, best, network, augmentation)]
    workers.append(python_worker("plain Python", "step.py", {**common, **PLAIN}, size))
    yield f"training with input: {network} x {size}", alternate(workers, options.rounds, options.seconds)


def measure_torchvision(options, best, networks):
    """Measures all networks, or only those that were requested."""
    size, batch_size = TORCHVISION_SIZE["image"], TORCHVISION_SIZE["batch"]
    frozen = ["--frozen-statistics"] if options.frozen_statistics else []
    peer = {"size": batch_size, "image_size": size, "frozen_statistics": options.frozen_statistics}
    for network in TORCHVISION if networks == DEFAULT_NETWORKS else [name for name in TORCHVISION if name in networks]:
        resize = f"[resize: {{size: {size}}}]"
        sized = [f"model.image_size={size}", f"dataset.train_transforms={resize}", f"dataset.validation_transforms={resize}"] if network.startswith("vit") else []
        workers = [step_worker(options, network, "resident", "--size", size, *frozen, *sized, size=batch_size),
                   step_peer(options, best, network, "resident", **peer)]
        if options.compile:
            workers.append(step_peer(options, best, network, "resident", **peer, compile=options.compile))
            workers[-1].name = f"torch.compile, {options.compile}"
        title = f"training step: {network} x {batch_size}, {size} px{', frozen statistics' if frozen else ''}"
        yield title, alternate(workers, options.rounds, options.seconds)


def measure_batches(options, best, network):
    for size in BATCHES.get(network, []):
        workers = [step_worker(options, network, "resident", size=size), step_peer(options, best, network, "resident", size=size)]
        yield f"training step, batch size {size}: {network}", alternate(workers, options.rounds, options.seconds)


def measure_busy(options, best, network):
    """A training step while other trainings use all cores."""
    busy = {"network": BUSY["network"], "batch_size": BUSY["batch_size"], "input": "resident"}
    others = [python_worker("other", "step.py", busy, BUSY["batch_size"]) for _ in range(BUSY["trainings"])]
    try:
        for other in others:
            other.begin(10**9)
        workers = [step_worker(options, network, "resident"), step_peer(options, best, network, "resident")]
        result = alternate(workers, options.rounds, options.seconds)
    finally:
        for other in others:
            other.kill()
    del result["foreign_cores"]
    yield f"training step beside {len(others)} other trainings: {network} x {BATCH_SIZE[network]}", result


def measure_ranks(options, best, network):
    """The two results of measure_step() for several ranks, each with its part of the batch; with ready batches also our speed in one
    process with all threads. Batch statistics are local to each rank, as in DistributedDataParallel, except in the contender with
    SyncBatchNorm."""
    size = RANK_BATCH_SIZE
    together = size * RANKS
    settings = {**best.step(network), "threads": max(1, harness.num_cores() // RANKS), "optimizer": "fused"}
    allocator = settings.pop("allocator")
    augmentation = best.augmentation("bfloat16" if settings["bfloat16"] else "float32", settings["channels_last"])
    common = {"network": network, "batch_size": size, "data": options.data}

    def ours(name, source, num_ranks=RANKS, sync_batch_norm="false"):
        argv = [options.bin / ("bench_ranks" if num_ranks > 1 else "bench_step"), "--network", network, "--input", source]
        argv += ["--batch-size", together // num_ranks, "--data", options.data, f"distributed.sync_batch_norm={sync_batch_norm}"]
        argv += dtype_settings(options)
        return our_worker(name, argv, together, num_ranks=num_ranks)

    def peer(name, chosen, allocator=False, environment=None):
        return python_worker(name, "ranks.py", {**common, **chosen}, together, allocator, RANKS, environment)

    workers = [ours("ours", "resident"), ours("ours, 1 process", "resident", num_ranks=1)]
    if network != "demo_conv":
        workers.append(ours("ours, SyncBatchNorm", "resident", sync_batch_norm="true"))
    workers.append(peer("best Python", {**settings, "tuned": True, "input": "resident"}, allocator))
    yield f"training step, {RANKS} ranks: {network} x {size} each", alternate(workers, options.rounds, options.seconds)
    workers = [ours("ours", "pipeline"), peer("best Python", {**settings, "tuned": True, "input": augmentation}, allocator)]
    workers += [peer("plain Python", PLAIN), peer("plain under torchrun", PLAIN, environment={"OMP_NUM_THREADS": "1"})]
    yield f"training with input, {RANKS} ranks: {network} x {size} each", alternate(workers, options.rounds, options.seconds)


def hidden_share(answers):
    """The hidden percentage of the exchange. 100 % is the time of the exchange alone; the ranks wait for the part that is not hidden."""
    exposed, alone = ([value for answer in answers for value in answer[key]] for key in ("exposed", "alone"))
    return 100 * (1 - statistics.mean(exposed) / statistics.median(alone))


def overlap_worker(options, bucket_cap_mb):
    argv = [options.bin / "bench_ranks", "--overlap", "--network", OVERLAP["network"], "--batch-size", OVERLAP["batch_size"]]
    argv += ["--input", "resident", "--data", options.data, "distributed.sync_batch_norm=false"]
    return our_worker(f"{bucket_cap_mb} MiB", [*argv, f"distributed.bucket_cap_mb={bucket_cap_mb}"], None, num_ranks=RANKS)


def measure_overlap(options):
    """For each bucket size, the percentage of the gradient exchange that is hidden behind the backward pass: over all steps after the
    second, with the spread of the rounds."""
    workers = [overlap_worker(options, cap) for cap in OVERLAP["bucket_cap_mb"]]
    for worker in workers:
        worker.ask(1)  # the second step
    rounds = {worker.name: [] for worker in workers}
    foreign = []
    for _ in range(options.rounds):
        foreign.append(busy_cores(0.5))
        for worker in workers:
            rounds[worker.name].append(worker.ask(OVERLAP["steps"]))
    contenders = []
    for worker in workers:
        answers, sizes = rounds[worker.name], worker.settings["bucket_sizes"]
        result = {"name": worker.name, **summary([hidden_share([answer]) for answer in answers]), "all_steps": hidden_share(answers)}
        for key in ("exposed", "alone"):
            result[key + "_ms"] = summary([1000 * value for answer in answers for value in answer[key]])
        result["last_bucket"] = sizes[-1] / sum(sizes)
        contenders.append({**result, "memory_mb": worker.close(), **worker.command, "settings": worker.settings})
    title = f"all_reduce hidden behind backward, {RANKS} ranks: {OVERLAP['network']} x {OVERLAP['batch_size']} each"
    return title, {"unit": "%", "contenders": contenders, "foreign_cores": foreign}


def measure_watch(options, network):
    """The cost of failure detection and of the agreement to stop as a percentage of a step: median and quartiles over many turns."""
    argv = [options.bin / "bench_ranks", "--watch", "--network", network, "--batch-size", RANK_BATCH_SIZE, "--input", "resident"]
    worker = our_worker(network, [*argv, "--data", options.data, "distributed.sync_batch_norm=false"], None, num_ranks=RANKS)
    worker.calibrate(2 * WATCH["seconds"])
    costs, step_seconds, foreign = [], [], []
    for _ in range(WATCH["turns_per_round"] * options.rounds):
        foreign.append(busy_cores(0.1))
        answer = worker.ask(worker.steps)
        step_seconds.append(answer["plain"] / worker.steps)
        costs.append(100 * (answer["watched"] / answer["plain"] - 1))
    quartiles = statistics.quantiles(costs, n=4)
    settings = worker.settings
    parts = {"calls": 100 * settings["call_seconds"] / statistics.median(step_seconds), "beats": 100 * settings["idle_share"]}
    contender = {"name": network, "quartiles": quartiles, "values": costs, "parts": parts, "steps": worker.steps, "memory_mb": worker.close(), **worker.command,
                 "settings": settings}
    title = f"cost of failure detection, {RANKS} ranks: {network} x {RANK_BATCH_SIZE} each"
    return title, {"unit": "% of a step", "contenders": [contender], "foreign_cores": foreign}


def measure_input(options, best, dtype, channels_last):
    size = 128
    common = {"batch_size": size, "dtype": dtype, "channels_last": channels_last, "data": options.data}
    argv = [options.bin / "bench_input", "--batch-size", size, "--dtype", dtype, "--data", options.data]
    workers = [our_worker("ours", argv + ["--channels-last"] * channels_last, size)]
    pipelines = {"plain Python": "pil", "best Python": best.augmentation(dtype, channels_last), "normalized before": "normalized"}
    for name, pipeline in pipelines.items():
        workers.append(python_worker(name, "input.py", {**common, "pipeline": pipeline}, size, allocator=pipeline != "pil"))
    return f"input, one thread: {layout_name(dtype, channels_last)}", alternate(workers, options.rounds, options.seconds)


def measure_augment(options):
    """Measures CIFAR-10 with crop, flip and RandAugment on one thread."""
    size = 128
    argv = [options.bin / "bench_input", "--batch-size", size, "--rand-augment", "--data", options.data]
    workers = [our_worker("ours", argv, size)]
    for name, pipeline in {"torchvision, PIL": "pil_rand_augment", "torchvision, tensors": "tensor_rand_augment"}.items():
        workers.append(python_worker(name, "input.py", {"batch_size": size, "data": options.data, "pipeline": pipeline}, size, allocator=False))
    return "RandAugment of 32 x 32, one thread", alternate(workers, options.rounds, options.seconds)


def measure_workers(options):
    """Measures image files with two loader threads and with one."""
    size = 32
    with tempfile.TemporaryDirectory() as folder:
        write_photographs(pathlib.Path(folder))
        argv = [options.bin / "bench_input", "--batch-size", size, "--data", folder, "--dataset", "image_folder", "--workers"]
        workers = [our_worker(f"{count} loader threads", [*argv, count], size) for count in (2, 1)]
        return "image files, loader threads", alternate(workers, options.rounds, options.seconds)


def write_photographs(folder, count=256):
    """Writes JPEG files of 500 x 375 pixels, the average size in ImageNet, with smooth areas, edges and noise like photographs."""
    import numpy
    from PIL import Image, ImageFilter

    generator = numpy.random.default_rng(0)
    for i in range(count):
        colours = Image.fromarray(generator.integers(0, 256, (6, 8, 3), dtype=numpy.uint8))
        image = colours.resize((500, 375), Image.BICUBIC)
        for _ in range(12):
            left, top = (int(n) for n in generator.integers(0, 350, 2))
            width, height = (int(n) for n in generator.integers(10, 150, 2))
            image.paste(tuple(int(n) for n in generator.integers(0, 256, 3)), (left, top, left + width, top + height))
        noise = generator.normal(0, 6, (375, 500, 3))
        pixels = numpy.clip(numpy.asarray(image.filter(ImageFilter.GaussianBlur(1))) + noise, 0, 255).astype(numpy.uint8)
        path = folder / str(i % 4) / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)


def measure_images(options):
    """JPEG files to normalised float32 batches on one thread."""
    size = 32
    with tempfile.TemporaryDirectory() as folder:
        write_photographs(pathlib.Path(folder))
        workers = [our_worker("ours", [options.bin / "bench_input", "--batch-size", size, "--data", folder, "--dataset", "image_folder"], size)]
        for name, pipeline in {"torchvision, PIL": "pil", "torchvision, tensors": "tensor", "OpenCV": "opencv"}.items():
            workers.append(python_worker(name, "images.py", {"batch_size": size, "data": folder, "pipeline": pipeline}, size, allocator=pipeline != "pil"))
        return "image files, one thread: JPEG 500 x 375 to 224 x 224", alternate(workers, options.rounds, options.seconds)


def measure_packed(options):
    """Packed pixels with a shorter edge of 256 to normalised float32 batches on one thread."""
    size = 32
    with tempfile.TemporaryDirectory() as folder:
        photographs, packed = pathlib.Path(folder, "photographs"), pathlib.Path(folder, "packed")
        write_photographs(photographs, count=1024)
        config = pathlib.Path(folder, "images.yaml")
        config.write_text(f"experiment: bench\nmodel: {{name: resnet18}}\ntraining: {{epochs: 1}}\ndataset: {{name: image_folder, root: {photographs}}}\n")
        command = [options.bin / "trainer", "data", "pack", "--config", config, "--output", packed, "--raw", "--resize", "256"]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
        workers = [our_worker("ours", [options.bin / "bench_input", "--batch-size", size, "--data", packed, "--dataset", "lmdb"], size)]
        chosen = {"batch_size": size, "data": photographs, "pipeline": "memory"}
        workers.append(python_worker("torchvision, tensors in memory", "images.py", chosen, size, allocator=True))
        return "packed pixels, one thread: 341 x 256 to 224 x 224", alternate(workers, options.rounds, options.seconds)


def measure_checkpoint(options, best):
    """The cost of a checkpoint: the pause of the training, how much longer the steps during the write take, the time until it is written,
    and the time to load it."""
    settings = best.step(CHECKPOINT["network"])
    allocator = settings.pop("allocator")
    common = {key: CHECKPOINT[key] for key in ("network", "batch_size", "steps")}
    methods = {"torch.save": "torch_save", "torch.save, durable": "durable", "own thread": "background",
               "DCP async, thread": "dcp_thread", "DCP async, process": "dcp_process"}
    keys = ("pause", "written", "plain", "beside", "load")
    with contextlib.ExitStack() as stack:
        def new_folder():
            return pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-checkpoint-", dir=ROOT / "build")))

        argv = [options.bin / "bench_checkpoint", "--input", "resident", "--data", options.data, "--folder", new_folder()]
        for key, value in common.items():
            argv += [f"--{key.replace('_', '-')}", value]
        workers = [our_worker("ours", argv, None)]
        for name, method in methods.items():
            chosen = {**common, **settings, "input": "resident", "method": method, "folder": new_folder()}
            workers.append(python_worker(name, "checkpoint.py", chosen, None, allocator))
        values = {worker.name: {key: [] for key in keys} for worker in workers}
        foreign = []
        for i in range(options.rounds):
            foreign.append(busy_cores(0.5))
            for worker in workers if i % 2 == 0 else reversed(workers):
                answer = worker.ask(CHECKPOINT["per_turn"])
                for key in keys:
                    values[worker.name][key] += [1000 * seconds for seconds in answer[key]]
        contenders = []
        for worker in workers:
            of_worker = values[worker.name]
            slower = statistics.quantiles([b - a for a, b in zip(of_worker["plain"], of_worker["beside"])], n=4)
            result = {"name": worker.name, "slower": slower, **{key: summary(of_worker[key]) for key in keys}}
            contenders.append({**result, "memory_mb": worker.close(), **worker.command, "settings": worker.settings})
    title = f"checkpoint of {CHECKPOINT['network']} with momentum, 90 MB, between steps of {CHECKPOINT['batch_size']} images"
    return title, {"unit": "ms", "contenders": contenders, "foreign_cores": foreign}


def first_step(argv, allocator, run_dir=None):
    """Seconds from the start of the process to the end of its first step, and the peak memory until then. Our program writes the end time
    to metrics.jsonl in run_dir; the Python scripts print it."""
    env = {**os.environ, **(ALLOCATOR if allocator else {})}
    pipe = subprocess.PIPE
    start = time.time()
    process = subprocess.Popen(argv, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    end = memory = None
    if run_dir:
        end = wait_for_train_event(process, run_dir / "metrics.jsonl")
    elif line := process.stdout.readline():
        end = float(line.split()[1])
    if end:
        memory = peak_memory_mb(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # including its loader processes
    _, errors = process.communicate()
    if not end:
        raise SystemExit(f"bench: {' '.join(map(str, argv))} ended before its first step:\n{errors}")
    return end - start, memory


def wait_for_train_event(process, path):
    while process.poll() is None:
        for line in path.read_text().splitlines(keepends=True) if path.exists() else []:
            if line.endswith("\n") and (event := json.loads(line))["event"] == "train":
                return event["time"]
        time.sleep(0.01)
    return None


def measure_start(options):
    """ResNet-18, batch 32."""
    sample = ROOT / "datasets" / "cifar10_sample"
    python = sys.executable
    argvs = {
        "ours": [options.bin / "trainer", "--config", ROOT / "bench" / "start.yaml", "--run-dir"],
        "leanest Python": [python, PEERS / "start.py"],
        "stripped Python": [python, PEERS / "start.py", "--strip"],
        "plain Python": [python, PEERS / "start_typical.py", sample],
    }
    values = {name: [] for name in argvs}
    memory = {name: [] for name in argvs}
    foreign = []
    for i in range(options.rounds + 1):
        foreign.append(busy_cores(0.5))
        for name, argv in argvs.items():
            with tempfile.TemporaryDirectory() as folder:
                run_dir = pathlib.Path(folder) / "run" if name == "ours" else None
                seconds, peak = first_step(argv + ([run_dir] if run_dir else []), "Python" in name and name != "plain Python", run_dir)
            if i > 0:  # the first round only reads the files into the page cache
                values[name].append(seconds)
                memory[name].append(peak)
    contenders = [
        {"name": name, **summary(values[name]), "memory_mb": statistics.median(memory[name]), "argv": [str(a) for a in argv]}
        for name, argv in argvs.items()
    ]
    return "process start to first step: resnet18 x 32", {"unit": "s", "contenders": contenders, "foreign_cores": foreign}


def measure(options, best):
    if "step" in options.parts:
        for network in options.networks:
            yield from measure_step(options, best, network)
    if "evaluation" in options.parts:
        for network in options.networks:
            yield from measure_evaluation(options, best, network)
    if "batches" in options.parts:
        for network in options.networks:
            yield from measure_batches(options, best, network)
    if "torchvision" in options.parts:
        yield from measure_torchvision(options, best, options.networks)
    if "busy" in options.parts:
        for network in options.networks:
            yield from measure_busy(options, best, network)
    if "ranks" in options.parts:
        for network in options.networks:
            yield from measure_ranks(options, best, network)
            yield measure_watch(options, network)
        yield measure_overlap(options)
    if "input" in options.parts:
        for dtype, channels_last in LAYOUTS:
            yield measure_input(options, best, dtype, channels_last)
    if "images" in options.parts:
        yield measure_images(options)
    if "packed" in options.parts:
        yield measure_packed(options)
    if "augment" in options.parts:
        yield measure_augment(options)
    if "workers" in options.parts:
        yield measure_workers(options)
    if "checkpoint" in options.parts:
        yield measure_checkpoint(options, best)
    if "start" in options.parts:
        yield measure_start(options)


def peak_gflops(options):
    return float(subprocess.run([options.bin / "bench_peak"], check=True, capture_output=True, text=True).stdout)


def add_peak_shares(result, peak):
    """Adds the fraction of the machine's peak that each contender reaches. The operations of the direct algorithm are counted for all."""
    counts = (c.get("settings", {}).get("flops_per_image") for c in result["contenders"])
    flops = next(filter(None, counts), None)
    for contender in result["contenders"] if flops else []:
        contender["peak_share"] = contender["median"] * flops / (peak * 1e9)


def print_result(title, result):
    print(f"\n{title} [{result['unit']}]")
    if result["unit"] == "%":
        print_overlap(result)
    elif result["unit"] == "% of a step":
        for c in result["contenders"]:
            print("  median {1:+.2f}, quartiles {0:+.2f} and {2:+.2f}, {count} turns".format(*c["quartiles"], count=len(c["values"])))
            print("  parts measured separately: calls in a step {calls:.3f} %, heartbeats {beats:.3f} % of a processor".format(**c["parts"]))
    elif result["unit"] == "ms":
        print_checkpoint(result)
    else:
        print_contenders(result, digits=2 if result["unit"] == "s" else 0)
    if max(result.get("foreign_cores", [0])) > 0.2:
        print(f"  other processes used up to {max(result['foreign_cores']):.1f} cores: these figures are not reliable; repeat them on an idle machine")
    sys.stdout.flush()


def print_contenders(result, digits):
    print(f"  {'':20}{'median':>10}{'min - max':>22}{'MB':>8}{'of peak':>10}    our speed / theirs")
    for c in result["contenders"]:
        spread = f"{c['min']:,.{digits}f} - {c['max']:,.{digits}f}"
        ratio = "{median:.2f} ({min:.2f} - {max:.2f})".format(**c["ratio"]) if "ratio" in c else ""
        share = f"{100 * c['peak_share']:.0f} %" if "peak_share" in c else ""
        print(f"  {c['name']:20}{c['median']:>10,.{digits}f}{spread:>22}{c['memory_mb']:>8,.0f}{share:>10}    {ratio}")


def print_checkpoint(result):
    print(f"  {'':20}{'pause':>22}{'written':>20}{'load':>20}{'step':>8}{'slower by (quartiles)':>24}{'MB':>8}")
    for c in result["contenders"]:
        pause, written, load = ("{median:.1f} ({min:.0f} - {max:.0f})".format(**c[key]) for key in ("pause", "written", "load"))
        slower = "{1:.0f} ({0:.0f} - {2:.0f})".format(*c["slower"])
        print(f"  {c['name']:20}{pause:>22}{written:>20}{load:>20}{c['plain']['median']:>8.0f}{slower:>24}{c['memory_mb']:>8,.0f}")


def print_overlap(result):
    print(f"  {'buckets up to':14}{'last bucket':>12}{'all steps':>11}{'rounds':>22}{'exposed ms':>22}{'alone ms':>22}")
    for c in result["contenders"]:
        spread = "{median:.0f} ({min:.0f} - {max:.0f})".format(**c)
        times = ["{median:.1f} ({min:.1f} - {max:.1f})".format(**c[key]) for key in ("exposed_ms", "alone_ms")]
        print(f"  {c['name']:14}{100 * c['last_bucket']:>10.0f} %{c['all_steps']:>9.0f} %{spread:>22}{times[0]:>22}{times[1]:>22}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", help="folder of our programs")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[part for part in PARTS if part != "torchvision"])
    parser.add_argument("--networks", nargs="+", choices=[*BATCH_SIZE, *TORCHVISION], default=DEFAULT_NETWORKS)
    parser.add_argument("--data", default=harness.default_data(), help="folder of the CIFAR-10 files (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4, help="duration of one turn of one contender (default: %(default)s)")
    parser.add_argument("--frozen-statistics", action="store_true", help="for the part torchvision: batch normalisation uses running statistics")
    parser.add_argument("--compile", metavar="MODE", help="for the part torchvision: measure also torch.compile with this mode, such as default")
    parser.add_argument("--float32", action="store_true", help="no autocast on either side, even on a processor that is faster with it")
    return parser.parse_args()


def main():
    options = parse_arguments()
    options.bin = options.bin.resolve()
    best = BestPython(options.float32)
    report = {"machine": harness.machine(), "data": options.data, "rounds": options.rounds, "best_python": best.source, "results": {}}
    report["peak_gflops"] = peak_gflops(options)
    report["dtype"] = "bfloat16" if best.bfloat16 else "float32"
    known = {"type": report["dtype"], "peak, float32 GFLOP/s": report["peak_gflops"], "data": options.data, "best Python from": best.source}
    for key, value in {**report["machine"], **known}.items():
        print(f"{key}: {value}")
    output = ROOT / "build" / "bench" / (time.strftime("%Y%m%d_%H%M%S") + ".json")
    output.parent.mkdir(parents=True, exist_ok=True)
    for title, result in measure(options, best):
        report["results"][title] = add_ratios(result) if result["unit"] in ("images/s", "s") else result
        add_peak_shares(result, report["peak_gflops"])
        print_result(title, result)
        output.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nratios are our speed relative to theirs in the same round; everything is in {output.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
