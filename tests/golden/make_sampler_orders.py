#!/usr/bin/env python3
"""Writes sampler_orders.json: the lists of torch.utils.data.DistributedSampler, which the program has to reproduce index by index.

A case has the sampler's arguments and an epoch; for each rank, `orders` has the list's length, its first HEAD entries (all of a short
list), and sum((i + 1) * x[i]), which changes if any two entries are swapped.
"""

import itertools
import json
import pathlib

import torch
from torch.utils.data import DistributedSampler

HEAD = 8
# 50 shuffled cases, with fewer samples than ranks, and with equal and unequal numbers of samples per rank; epochs and seeds alternate.
NUM_SAMPLES = [3, 10, 100, 1013, 50000]
WORLD_SIZES = [1, 2, 3, 5, 8]
EPOCHS = [0, 1, 7]
SEEDS = [0, 42, 1, 2**40 + 3, 7, 2**32 - 1, 123456789]
# (num_samples, world_size, drop_last) of the cases in the data set's order, including an empty data set.
IN_ORDER = [(2, 7, False), (10, 4, False), (10, 4, True), (0, 2, False), (0, 2, True)]


def cases():
    turns = zip(itertools.product(NUM_SAMPLES, WORLD_SIZES, [False, True]), itertools.cycle(EPOCHS), itertools.cycle(SEEDS))
    shuffled = [(*case, True, seed, epoch) for case, epoch, seed in turns]
    keys = ("num_samples", "world_size", "drop_last", "shuffle", "seed", "epoch")
    return [dict(zip(keys, case)) for case in shuffled + [(*case, False, 0, 0) for case in IN_ORDER]]


def order_of(case, rank):
    sampler = DistributedSampler(
        range(case["num_samples"]), case["world_size"], rank, shuffle=case["shuffle"], seed=case["seed"], drop_last=case["drop_last"]
    )
    sampler.set_epoch(case["epoch"])
    indices = list(sampler)
    weighted_sum = sum((i + 1) * index for i, index in enumerate(indices))
    return {"length": len(indices), "head": indices[:HEAD], "weighted_sum": weighted_sum}


def results():
    """The cases with their orders."""
    return [{**case, "orders": [order_of(case, rank) for rank in range(case["world_size"])]} for case in cases()]


def main():
    lines = ",\n  ".join(json.dumps(case) for case in results())
    text = f'{{\n "torch": "{torch.__version__}",\n "cases": [\n  {lines}\n ]\n}}\n'
    pathlib.Path(__file__).with_name("sampler_orders.json").write_text(text)


if __name__ == "__main__":
    main()
