#!/usr/bin/env python3
"""Writes data_parallel.json: gradients of DistributedDataParallel on two ranks over gloo, which the library has to reproduce.

`unused`: with find_unused_parameters. In each step a rank uses the parameters that `used` names; its loss is the sum of
(parameter * [1, 2, 3] * (1 + rank + step))² over them. Where `resets` is false, the gradients of the step before are kept. `gradients`
has those after each step, which all ranks share; null: none.

`kinds`: a sparse embedding [5, 2] of ones and a complex parameter [1 + 2i, 3 - 1i]. The loss is
(embedding[[0, rank + 1, rank + 1 + step]].sum() * (1 + rank))² + |complex * (1 + rank)|²; `embedding` and `complex` have the
gradients after each step, the complex one as [real, imaginary]."""

import json
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing

RANKS = 2
USED = [["ab", "ab"], ["a", "ac"], ["a", "ac"], ["bc", "a"], ["b", "a"], ["a", "a"], ["ab", "bc"], ["c", "c"]]
RESETS = [True, True, True, True, False, False, True, False]
START = {"a": [0.1, 0.2, 0.3], "b": [-0.4, 0.5, 0.6], "c": [0.7, -0.8, 0.9]}


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, values in START.items():
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(values, dtype=torch.float64)))

    def forward(self, used, factor):
        x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) * factor
        return sum((getattr(self, name) * x).square().sum() for name in used)


class Kinds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 2, sparse=True, _weight=torch.ones(5, 2, dtype=torch.float64))
        self.complex = torch.nn.Parameter(torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128))

    def forward(self, rows, factor):
        return (self.embedding(rows).sum() * factor).square() + (self.complex * factor).abs().square().sum()


def lists_of(gradient):
    if gradient is None:
        return None
    gradient = gradient.to_dense() if gradient.is_sparse else gradient
    return (torch.view_as_real(gradient) if gradient.is_complex() else gradient).tolist()


def train(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    branches = Branches()
    parallel = torch.nn.parallel.DistributedDataParallel(branches, find_unused_parameters=True)
    unused = []
    for step, (used, resets) in enumerate(zip(USED, RESETS)):
        if resets:
            parallel.zero_grad()
        parallel(used[rank], 1 + rank + step).backward()
        unused.append({name: lists_of(parameter.grad) for name, parameter in branches.named_parameters()})
    module = Kinds()
    parallel = torch.nn.parallel.DistributedDataParallel(module)
    kinds = []
    for step in range(3):
        parallel.zero_grad()
        parallel(torch.tensor([0, rank + 1, rank + 1 + step]), 1 + rank).backward()
        kinds.append({"embedding": lists_of(module.embedding.weight.grad), "complex": lists_of(module.complex.grad)})
    if rank == 0:
        result = {"unused": {"start": START, "used": USED, "resets": RESETS, "gradients": unused}, "kinds": kinds}
        pathlib.Path(__file__).with_name("data_parallel.json").write_text(json.dumps(result) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (folder,), nprocs=RANKS)
