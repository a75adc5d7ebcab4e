"""Makes tests/fuzz/corpus: small files as Python writes them, for the fuzzers to begin with and for tests/unit/checkpoint.

usage: .deps/venv/bin/python tests/fuzz/make_corpus.py      (scripts/setup.sh --parity makes that Python)
"""

import collections
import io
import pathlib
import pickle
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


class OldPickler(pickle._Pickler):
    """Writes as Python 2 and PyTorch 0.3 did: text as bytes, the items of an OrderedDict in one list, and a tensor with an offset in its
    storage as a tensor without an offset in a view of that storage."""

    def __init__(self, file):
        super().__init__(file, protocol=2)
        self.storages = {}

    def save_str(self, text):
        content = text.encode()
        if len(content) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(content)]) + content)
        else:
            self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)
        self.memoize(text)

    dispatch = pickle._Pickler.dispatch | {str: save_str}

    def reducer_override(self, value):
        if isinstance(value, collections.OrderedDict):
            return collections.OrderedDict, ([list(item) for item in value.items()],), vars(value) or None
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter, (value.detach(),), (True, False, collections.OrderedDict())
        if isinstance(value, torch.Tensor):
            return torch._utils._rebuild_tensor, (ViewOfStorage(value), 0, tuple(value.shape), value.stride())
        return NotImplemented

    def persistent_id(self, value):
        if not isinstance(value, ViewOfStorage):
            return None
        storage = value.tensor.untyped_storage()
        key, _ = self.storages.setdefault(storage.data_ptr(), (str(70 - len(self.storages)), value.tensor))
        size = storage.nbytes() // value.tensor.element_size()
        first = value.tensor.storage_offset()
        view = (f"{key}{first}", first, size - first) if first > 0 else None
        kind = torch.storage._dtype_to_storage_type_map()[value.tensor.dtype]
        return ("storage", getattr(torch, kind), key, "cuda:0", size, view)


class ViewOfStorage:
    def __init__(self, tensor):
        self.tensor = tensor


def make_python2_file(value):
    """Writes like _legacy_save of torch/serialization.py."""
    file = io.BytesIO()
    for part in (torch.serialization.MAGIC_NUMBER, torch.serialization.PROTOCOL_VERSION):
        pickle.dump(part, file, protocol=2)
    OldPickler(file).dump({"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}})
    pickler = OldPickler(file)
    pickler.dump(value)
    storages = dict(sorted(pickler.storages.values(), key=lambda storage: storage[0]))
    OldPickler(file).dump(list(storages))
    for tensor in storages.values():
        content = tensor.untyped_storage().tolist()
        file.write((len(content) // tensor.element_size()).to_bytes(8, "little") + bytes(content))
    return file.getvalue()


def make_python2_checkpoint():
    numbers = torch.arange(6, dtype=torch.float32)
    model = collections.OrderedDict(weight=torch.nn.Parameter(numbers.reshape(2, 3)), part=numbers[2:].reshape(2, 2).t(), last=numbers[5:])
    model._metadata = collections.OrderedDict({"": {"version": 1}})
    return {"model": model, "counts": torch.arange(3), "empty": torch.empty(0), "numbers": [2**40, -1, 0.5], "text": "a" * 300, 7: None}


def make_pytorch_file(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(make_checkpoint(), folder / "torch_save.pt")
    torch.save([torch.ones(2)], folder / "small.pt")
    torch.save(make_checkpoint(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
    (folder / "legacy_python2.pt").write_bytes(make_python2_file(make_python2_checkpoint()))
    # The fuzzer runs programs without an archive.
    (folder / "torch_save.pkl").write_bytes(zipfile.ZipFile(folder / "torch_save.pt").read("torch_save/data.pkl"))


def make_safetensors(folder):
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"weight": torch.arange(6, dtype=torch.float32).reshape(2, 3), "steps": torch.arange(4), "flags": torch.ones(8, dtype=torch.bool),
               "empty": torch.empty(0, 3)}
    content = safetensors.torch.save(tensors, metadata={"format": "pt"})
    (folder / "python.safetensors").write_bytes(content)
    # Only a header: fuzz_safetensors.cpp adds what makes it a whole file.
    (folder / "header.json").write_bytes(content[8 : 8 + int.from_bytes(content[:8], "little")])


if __name__ == "__main__":
    make_pytorch_file(CORPUS / "pytorch_file")
    make_safetensors(CORPUS / "safetensors")
