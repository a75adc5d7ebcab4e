#!/usr/bin/env python3
"""Writes losses.json: losses of training steps in float64 in Python, which the program has to reproduce. tests/parity/test_losses.py
compares these and those in float32, which depend on the CPU, with losses that Python computes at the same time.

A case is one network trained on random images and labels. All random numbers are float64 and come from two CPU generators:
  weights  networks.fill(network, seed), which explains the order; then rounded to the case's dtype
  data     a generator seeded seed + 1: images = randn(steps, batch, 3, 32, 32), rounded to the dtype, then
           labels = randint(0, 10, (steps, batch)); step i trains on images[i] and labels[i]
Contiguous tensors, one thread, no autocast, training mode, mean cross entropy. `losses` has the loss before each update;
`sum` and `sum_of_squares` are over all parameters after the last update, in float64.

With `batch_transforms` (in YAML) each batch is mixed by torchvision before the step, with PyTorch's CPU generator seeded as in the program.
`label_smoothing` and `class_weights`, if a case has them, are arguments of the cross entropy.

A case with `ranks` is for that many ranks, which share each batch: rank r trains on the samples r, r + ranks, …; its losses are means
over the whole batch. Without `sync_batch_norm` Python uses DistributedDataParallel over gloo, with one process for each rank. With it
Python uses one process with the whole batch, because its SyncBatchNorm does not support the CPU.

`tolerance` is the allowed relative difference. float64: 1e-9 for all numbers. float32: for the losses and sum_of_squares, four times
the largest difference between Python's losses with 1 and with 2 threads, at least 1e-5. float32 uses the fused optimizer, whose kernels
the program uses too: another order of roundings would be amplified beyond the difference between thread counts.
"""

import json
import multiprocessing
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from networks import NETWORKS, fill
from torchvision.transforms import v2

BATCH = {"demo_conv": 16, "resnet20": 8, "resnet18": 4, "airbench": 4}  # small, because float64 has no fast convolutions
OPTIMIZERS = {
    "sgd": {"lr": 0.001, "momentum": 0.9, "weight_decay": 5e-4},
    "adamw": {"lr": 0.001, "weight_decay": 0.01},
}
MIXES = {"[mixup: {alpha: 0.4}, cutmix]": v2.RandomChoice([v2.MixUp(alpha=0.4), v2.CutMix()])}
BATCH_MIX_STREAM = 4  # src/train/engine/parts.h
CLASS_WEIGHTS = [0.5, 0.25, 3.0, 1.0, 0.125, 2.0, 1.5, 0.75, 4.0, 1.25]
STEPS = {"float64": 10, "float32": 5}


def case_of(network, optimizer, dtype, batch):
    options = OPTIMIZERS[optimizer]
    return {"network": network, "optimizer": optimizer, **options, "dtype": dtype, "batch": batch, "steps": STEPS[dtype], "seed": 1}


def cases(dtype):
    alone = [case_of(network, optimizer, dtype, batch) for network, batch in BATCH.items() for optimizer in OPTIMIZERS]
    if dtype == "float32":
        return alone
    together = [("demo_conv", False), ("resnet20", False), ("resnet20", True)]
    together = [{**case_of(network, "sgd", dtype, 16), "ranks": 2, "sync_batch_norm": sync} for network, sync in together]
    weighted = [{**together[2], "class_weights": CLASS_WEIGHTS, "label_smoothing": smoothing} for smoothing in (0, 0.1)]
    return alone + together + [{**together[0], "batch_transforms": mix, "label_smoothing": 0.1} for mix in MIXES] + weighted


def mix_seed(seed, a, b=0):
    """Like trainer::mix_seed (src/base/random.cpp)."""
    def splitmix64(state):
        value = (state + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        return value ^ (value >> 31)
    return splitmix64(splitmix64(splitmix64(seed) + a) + b)


def mix(case, step, rank, images, labels):
    """The images, and the probabilities of the classes, as the rank trains on them."""
    torch.manual_seed(mix_seed(mix_seed(case["seed"], BATCH_MIX_STREAM), step, rank))
    return MIXES[case["batch_transforms"]](images, F.one_hot(labels, 10).to(images.dtype))


def train(case, threads=1, memory_format=torch.contiguous_format, nudge=None):
    """The case with its results: losses, sum, sum_of_squares. `nudge`: a seed with which each value of the images is changed at random by
    at most its rounding in float32, to show the effect of rounding on the losses. `memory_format` and `nudge` are ignored if several
    processes train."""
    torch.set_num_threads(threads)
    if "ranks" not in case or case["sync_batch_norm"]:
        return {**case, **train_part(case, memory_format=memory_format, nudge=nudge)}
    with tempfile.TemporaryDirectory() as folder:
        # The fork server imports torchvision only once; this includes the modules that DistributedDataParallel imports.
        multiprocessing.set_forkserver_preload(["torchvision"])
        torch.multiprocessing.start_processes(train_rank, (case, folder), nprocs=case["ranks"], start_method="forkserver")
        return {**case, **json.loads(pathlib.Path(folder, "results").read_text())}


def train_rank(rank, case, folder):
    """The process of one rank. The ranks meet in `folder`, where rank 0 writes the results."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=case["ranks"])
    results = train_part(case, rank, case["ranks"])
    if rank == 0:
        pathlib.Path(folder, "results").write_text(json.dumps(results))
    dist.destroy_process_group()


def train_part(case, rank=0, ranks=1, memory_format=torch.contiguous_format, nudge=None):
    dtype = getattr(torch, case["dtype"])
    network = NETWORKS[case["network"]]().to(dtype).to(memory_format=memory_format)
    fill(network, case["seed"])
    steps, batch = case["steps"], case["batch"]
    generator = torch.Generator().manual_seed(case["seed"] + 1)
    images = torch.randn(steps, batch, 3, 32, 32, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 10, (steps, batch), generator=generator)
    if nudge is not None:
        images *= 1 + 2**-23 * (2 * torch.rand(images.shape, generator=torch.Generator().manual_seed(nudge), dtype=dtype) - 1)
    images, labels = images[:, rank::ranks].contiguous(), labels[:, rank::ranks].contiguous()

    parameters = list(network.parameters())
    options = {key: case[key] for key in OPTIMIZERS[case["optimizer"]]}
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[case["optimizer"]]
    optimizer = make(parameters, fused=dtype == torch.float32, **options)
    model = torch.nn.parallel.DistributedDataParallel(network) if ranks > 1 else network
    losses = []
    for step, (x, y) in enumerate(zip(images, labels)):
        if "batch_transforms" in case:
            x, y = mix(case, step, rank, x, y)
        optimizer.zero_grad()
        weight = torch.tensor(case["class_weights"], dtype=dtype) if "class_weights" in case else None
        loss = F.cross_entropy(model(x.contiguous(memory_format=memory_format)), y, weight=weight, label_smoothing=case.get("label_smoothing", 0))
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        if ranks > 1:
            dist.all_reduce(loss)
        losses.append(loss.item() / ranks)
    values = [p.detach().double() for p in parameters]
    return {"losses": losses, "sum": sum(v.sum().item() for v in values), "sum_of_squares": sum(v.square().sum().item() for v in values)}


def tolerance_between(result, other):
    """Four times the largest relative difference between the losses of two results that differ in rounding alone."""
    return 4 * max(abs(a - b) / abs(a) for a, b in zip(result["losses"], other["losses"]))


def with_tolerance(case):
    """The result of `train` with the tolerance."""
    result = train(case)
    if case["dtype"] == "float64":
        return {**result, "tolerance": 1e-9}
    return {**result, "tolerance": max(tolerance_between(result, train(case, threads=2)), 1e-5)}


if __name__ == "__main__":
    golden = {"torch": torch.__version__, "cases": [with_tolerance(case) for case in cases("float64")]}
    pathlib.Path(__file__).with_name("losses.json").write_text(json.dumps(golden, indent=1) + "\n")
