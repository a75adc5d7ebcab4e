#!/usr/bin/env python3
"""Writes sampler_orders.json: the lists of Python's samplers, which the program has to reproduce index by index.

`cases` are of torch.utils.data.DistributedSampler, `weighted` of torch.utils.data.WeightedRandomSampler, and `repeated` of the repeated
augmentation of torchvision's references (references/classification/sampler.py). A case has the sampler's arguments and an epoch; for each
rank, `orders` has the list's length, its first HEAD entries (all of a short list), and sum((i + 1) * x[i]), which changes if any two
entries are swapped.
"""

import itertools
import json
import pathlib

import torch
from torch.utils.data import DistributedSampler, WeightedRandomSampler

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
    return digest(list(sampler))


def digest(indices):
    weighted_sum = sum((i + 1) * index for i, index in enumerate(indices))
    return {"length": len(indices), "head": indices[:HEAD], "weighted_sum": weighted_sum}


# (num_weights, num_samples, replacement, seed, epoch)
WEIGHTED = [(5, 12, True, 0, 0), (5, 4, False, 42, 1), (50, 50, True, 7, 3), (1000, 1500, True, 42, 2), (1000, 700, False, 1, 0), (3, 1, True, 9, 0),
            (50000, 50000, True, 2**32 - 1, 5)]


def weight_of(index):
    """The weight of the sample at `index` in the weighted cases; some are 0."""
    return index * 7 % 11 / 8


def weighted_order(num_weights, num_samples, replacement, seed, epoch):
    generator = torch.Generator().manual_seed(seed + epoch)
    return digest(list(WeightedRandomSampler([weight_of(i) for i in range(num_weights)], num_samples, replacement, generator)))


# (size, repeats, world_size, seed, epoch)
REPEATED = [(256, 3, 1, 0, 0), (300, 3, 2, 42, 1), (1000, 3, 3, 7, 2), (5000, 4, 8, 1, 5), (777, 2, 5, 42, 0), (600, 1, 2, 3, 1)]


def repeated_order(size, repeats, world_size, rank, seed, epoch):
    """A rank's list: each index of the epoch's permutation comes `repeats` times in a row, and each rank takes every world_size-th entry
    until all ranks together have as many as there are samples, rounded down to a multiple of 256."""
    permutation = torch.randperm(size, generator=torch.Generator().manual_seed(seed + epoch))
    return digest(permutation.repeat_interleave(repeats)[rank::world_size][: size // 256 * 256 // world_size].tolist())


def results():
    """The cases of each sampler, with their orders."""
    weighted_keys = ("num_weights", "num_samples", "replacement", "seed", "epoch")
    repeated_keys = ("size", "repeats", "world_size", "seed", "epoch")
    return {
        "cases": [{**case, "orders": [order_of(case, rank) for rank in range(case["world_size"])]} for case in cases()],
        "weighted": [{**dict(zip(weighted_keys, case)), "orders": [weighted_order(*case)]} for case in WEIGHTED],
        "repeated": [
            {**dict(zip(repeated_keys, (size, repeats, ranks, seed, epoch))),
             "orders": [repeated_order(size, repeats, ranks, rank, seed, epoch) for rank in range(ranks)]}
            for size, repeats, ranks, seed, epoch in REPEATED
        ],
    }


def main():
    lists = [f' "{name}": [\n  ' + ",\n  ".join(map(json.dumps, cases)) + "\n ]" for name, cases in results().items()]
    text = f'{{\n "torch": "{torch.__version__}",\n' + ",\n".join(lists) + "\n}\n"
    pathlib.Path(__file__).with_name("sampler_orders.json").write_text(text)


if __name__ == "__main__":
    main()
