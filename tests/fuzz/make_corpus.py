"""Makes tests/fuzz/corpus: small files as Python writes them, for the fuzzers to begin with and for tests/unit/checkpoint.

usage: .deps/venv/bin/python tests/fuzz/make_corpus.py      (scripts/setup.sh --parity makes that Python)
"""

import collections
import pathlib
import zipfile

import safetensors.torch
import torch

CORPUS = pathlib.Path(__file__).with_name("corpus")


def make_checkpoint():
    numbers = torch.arange(6, dtype=torch.float32)
    model = collections.OrderedDict(weight=torch.nn.Parameter(numbers.reshape(2, 3)), tied=numbers.reshape(3, 2).t())
    model._metadata = collections.OrderedDict({"": {"version": 1}})
    groups = [{"lr": 0.1, "betas": (0.9, 0.999), "nesterov": False, "fused": None, "params": [0]}]
    return {
        "model": model,
        "optimizer": {"state": {0: {"step": torch.arange(3, dtype=torch.int32), "max": torch.zeros(6, dtype=torch.bool)}}, "param_groups": groups},
        "milestones": collections.Counter([30, 60]),
        "types": [torch.Size([1, 2]), torch.float16, torch.device("cuda", 0)],
        "numbers": [1, 256, 70000, -1, 2**40],
        "empty": torch.empty(0, dtype=torch.uint16),
    }


def make_pytorch_file(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(make_checkpoint(), folder / "torch_save.pt")
    torch.save(make_checkpoint(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save([torch.ones(2)], folder / "small.pt")
    # The fuzzer runs programs by themselves.
    (folder / "torch_save.pkl").write_bytes(zipfile.ZipFile(folder / "torch_save.pt").read("torch_save/data.pkl"))


def make_safetensors(folder):
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"weight": torch.arange(6, dtype=torch.float32).reshape(2, 3), "steps": torch.arange(4), "flags": torch.ones(8, dtype=torch.bool),
               "empty": torch.empty(0, 3)}
    content = safetensors.torch.save(tensors, metadata={"format": "pt"})
    (folder / "python.safetensors").write_bytes(content)
    # The fuzzer makes files of headers by itself.
    (folder / "header.json").write_bytes(content[8 : 8 + int.from_bytes(content[:8], "little")])


if __name__ == "__main__":
    make_pytorch_file(CORPUS / "pytorch_file")
    make_safetensors(CORPUS / "safetensors")
