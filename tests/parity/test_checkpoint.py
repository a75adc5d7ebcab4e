"""PyTorch reads the files that the module `checkpoint` writes, and vice versa; also with safetensors. The program parity_checkpoint reads a
file from Python and writes it again; both files must be equal."""

import collections
import os
import pathlib
import subprocess
import sys
import unittest

import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import FolderCase  # noqa: E402

CORPUS = pathlib.Path(__file__).parents[1] / "fuzz/corpus/pytorch_file"
# The program is in the folder of TRAINER_BINARY.
PROGRAM = pathlib.Path(os.environ["TRAINER_BINARY"]).with_name("parity_checkpoint")

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64)


def describe(value):
    """A description that is equal for values that this program does not distinguish: tuples and lists, OrderedDict and dictionary."""
    if isinstance(value, torch.Tensor):
        data = value.detach()
        return (data.dtype, tuple(data.shape), data.stride(), bytes(data.contiguous().view(-1).view(torch.uint8).tolist()))
    if isinstance(value, dict):
        return [(key, describe(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    return (type(value), value)


def make_training_checkpoint():
    """A model with batch normalisation, and the states of SGD, AdamW and their schedules after some steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 2))
    checkpoint = {"model": model.state_dict(), "epoch": 3, "best": 0.5, "config": "lr: 0.1\n", "scaler": None}
    for optimizer in (torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.optim.AdamW(model.parameters(), fused=True)):
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3])
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(5, 3, 8, 8)).square().sum().backward()
            optimizer.step()
            schedule.step()
        checkpoint[type(optimizer).__name__] = optimizer.state_dict()
        checkpoint[type(optimizer).__name__ + " schedule"] = schedule.state_dict()
    return checkpoint


class CheckpointTest(FolderCase):
    def convert(self, kind, source):
        target = self.folder / f"converted.{kind}"
        self.assertNotEqual(source, target)
        run = subprocess.run([PROGRAM, kind, source, target], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return target

    def there_and_back(self, value):
        source = self.folder / "python.pt"
        converted = []
        for is_zip in (False, True):
            torch.save(value, source, _use_new_zipfile_serialization=is_zip)
            converted.append(self.convert("torch", source).read_bytes())
        self.assertEqual(*converted)
        return torch.load(self.folder / "converted.torch", weights_only=True)

    def test_each_dtype(self):
        state = {str(dtype): torch.arange(-3, 9).to(dtype) for dtype in DTYPES}
        self.assertEqual(describe(self.there_and_back(state)), describe(state))

    def test_shapes_and_strides(self):
        whole = torch.arange(120.0).reshape(2, 3, 4, 5)
        state = {
            "whole": whole,
            "transposed": whole.transpose(1, 3),
            "part": whole[:, 1:, ::2],
            "channels_last": whole.contiguous(memory_format=torch.channels_last),
            "expanded": torch.ones(1, 3).expand(4, 3),
            "zero_dim": torch.tensor(2.5),
            "empty": torch.empty(0, 3),
            "parameter": torch.nn.Parameter(torch.ones(2)),
        }
        back = self.there_and_back(state)
        self.assertEqual(describe(back), describe(state))
        self.assertEqual(back["whole"].untyped_storage().data_ptr(), back["part"].untyped_storage().data_ptr())
        self.assertNotEqual(back["whole"].untyped_storage().data_ptr(), back["channels_last"].untyped_storage().data_ptr())

    def test_tied_weights_stay_tied(self):
        model = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5))
        model[1].weight = model[0].weight
        back = self.there_and_back(model.state_dict())
        self.assertEqual(describe(back), describe(model.state_dict()))
        self.assertEqual(back["0.weight"].data_ptr(), back["1.weight"].data_ptr())

    def test_values(self):
        numbers = [0, 1, 255, 256, 65535, 65536, -1, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63)]
        fractions = [0.1, -0.0, float("inf"), 5e-324]
        value = {"numbers": numbers, "fractions": fractions, "text": "a\n\"b\" \u00e4\U0001f600", 7: (True, False, None), -1: {}, "deep": [[[]]],
                 "ordered": collections.OrderedDict(b=1, a=2), "many": list(range(3000)), "same": ["text"] * 300}
        self.assertEqual(describe(self.there_and_back(value)), describe(value))

    def test_types_become_text(self):
        back = self.there_and_back({"size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cuda", 1), "cpu": torch.device("cpu")})
        self.assertEqual(back, {"size": [2, 3], "dtype": "torch.bfloat16", "device": "cuda", "cpu": "cpu"})

    def test_training_checkpoint(self):
        checkpoint = make_training_checkpoint()
        self.assertTrue(hasattr(checkpoint["model"], "_metadata"))
        back = self.there_and_back(checkpoint)
        self.assertEqual(describe(back), describe(checkpoint))
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 2))
        model.load_state_dict(back["model"])
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        optimizer.load_state_dict(back["AdamW"])
        self.assertEqual(describe(optimizer.state_dict()), describe(checkpoint["AdamW"]))

    def test_legacy_files(self):
        """The program reads the same as torch.load from files in the format before PyTorch 1.6, including one from Python 2."""
        numbers = torch.arange(6.0)
        python = self.folder / "legacy.pt"
        value = {"a": {"whole": numbers, "part": numbers[2:].reshape(2, 2).t()}, "empty": torch.empty(0, 3), "many": [torch.ones(1)] * 3}
        torch.save(value, python, _use_new_zipfile_serialization=False)
        python2 = CORPUS / "legacy_python2.pt"
        # weights_only rejects texts of Python 2 with more than 255 bytes.
        for source, expected in ((python, torch.load(python, weights_only=True)),
                                 (python2, torch.load(python2, weights_only=False, map_location="cpu"))):
            back = torch.load(self.convert("torch", source), weights_only=True)
            self.assertEqual(describe(back), describe(expected))
        self.assertEqual(back["model"]["weight"].data_ptr() + 2 * 4, back["model"]["part"].data_ptr())

    def test_mapped(self):
        """Values are aligned, so that torch.load(mmap=True) can use them in place."""
        state = {"a": torch.arange(5, dtype=torch.int8), "b": torch.arange(100.0)}
        source = self.folder / "python.pt"
        torch.save(state, source)
        back = torch.load(self.convert("torch", source), weights_only=True, mmap=True)
        self.assertEqual(describe(back), describe(state))
        self.assertTrue(all(tensor.data_ptr() % 64 == 0 for tensor in back.values()))

    @unittest.skipUnless(os.environ.get("TRAINER_TEST_LARGE"), "TRAINER_TEST_LARGE=1 runs it; it needs 10 GB of memory and 14 GB of disk")
    def test_more_than_4_gib(self):
        """A storage size and entry offsets beyond 32 bits, from Python's file to the program's, then to safetensors."""
        large = torch.zeros(2**32 + 100, dtype=torch.uint8)
        large[:: 2**28] = 7
        large[-1] = 9
        sums = [large[: 2**31].sum().item(), large[2**31 :].sum().item()]
        source = self.folder / "python.pt"
        torch.save({"large": large, "small": torch.arange(3)}, source)
        del large
        for kind in ("torch", "safetensors"):
            source = self.convert(kind, source)
            back = torch.load(source, weights_only=True, mmap=True) if kind == "torch" else safetensors.torch.load_file(source)
            self.assertEqual(back["large"].shape, (2**32 + 100,))
            self.assertEqual([back["large"][: 2**31].sum().item(), back["large"][2**31 :].sum().item()], sums)
            self.assertEqual(back["large"][-1], 9)
            self.assertEqual(back["small"].tolist(), [0, 1, 2])
            del back

    def test_other_formats_are_refused(self):
        model = torch.jit.script(torch.nn.Linear(2, 2))
        torch.jit.save(model, self.folder / "script.pt")
        torch.save(torch.nn.Linear(2, 2), self.folder / "module.pt")
        torch.save(torch.nn.Linear(2, 2), self.folder / "legacy.pt", _use_new_zipfile_serialization=False)
        for name, words in (("script.pt", "TorchScript"), ("module.pt", '"torch.nn.modules.linear.Linear"'),
                            ("legacy.pt", '"torch.nn.modules.linear.Linear"')):
            run = subprocess.run([PROGRAM, "torch", self.folder / name, self.folder / "out"], capture_output=True, text=True)
            self.assertEqual(run.returncode, 5)
            self.assertIn(words, run.stderr)

    def test_safetensors(self):
        state = {str(dtype): torch.arange(-3, 9).reshape(3, 4).to(dtype) for dtype in DTYPES}
        state |= {"zero_dim": torch.tensor(2.5), "empty": torch.empty(0, 3), 'name "\u00e4"': torch.ones(1)}
        source = self.folder / "python.safetensors"
        safetensors.torch.save_file(state, source, metadata={"made_by": "trainer"})
        self.assertEqual(self.convert("safetensors", source).read_bytes(), source.read_bytes())
        back = torch.load(self.convert("torch", source), weights_only=True)
        self.assertEqual({name: describe(tensor) for name, tensor in back.items()}, {name: describe(tensor) for name, tensor in state.items()})

    def test_safetensors_of_other_strides(self):
        state = {"transposed": torch.arange(6.0).reshape(2, 3).t(), "part": torch.arange(10)[::3]}
        source = self.folder / "python.pt"
        torch.save(state, source)
        back = safetensors.torch.load_file(self.convert("safetensors", source))
        self.assertEqual({name: tensor.tolist() for name, tensor in back.items()}, {name: tensor.tolist() for name, tensor in state.items()})


if __name__ == "__main__":
    unittest.main()
