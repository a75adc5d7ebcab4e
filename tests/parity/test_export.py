"""Checkpoints with torchvision's state_dicts are exported, and Python reads the files. TRAINER_BINARY is the program."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import safetensors.torch
import torch
import torchvision
from torch.optim.swa_utils import AveragedModel

CONFIG = """experiment: exported
model: {{name: {name}, num_classes: 10}}
dataset: {{name: synthetic, shape: [3, 64, 64], num_classes: 10}}
training: {{epochs: 1}}
"""


class ExportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-parity-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.checkpoint, self.output = self.folder / "step_00000001.pt", self.folder / "exported"
        torch.manual_seed(1)

    def make(self, name, **changes):
        """Saves a checkpoint of a network with random values and returns the network."""
        model = getattr(torchvision.models, name)(num_classes=10).eval()
        for buffer in model.buffers():
            buffer.copy_(torch.rand(buffer.shape) + 0.5 if buffer.is_floating_point() else torch.tensor(7))
        state = {"format_version": 1, "config": CONFIG.format(name=name), "model": model.state_dict(), "ema": None}
        torch.save({**state, **changes}, self.checkpoint)
        return model

    def export(self, form, *flags, code=0):
        command = [os.environ["TRAINER_BINARY"], "export", "--checkpoint", self.checkpoint, "--format", form, "--output", self.output, *flags]
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(run.returncode, code, run.stderr)
        self.assertEqual(self.output.exists(), code == 0)
        return run.stderr

    def assert_same_state(self, actual, expected):
        self.assertEqual(list(actual), list(expected))
        for name, value in expected.items():
            self.assertTrue(actual[name].dtype == value.dtype and actual[name].equal(value), name)

    def test_state_dict(self):
        for name in ("resnet18", "vgg11_bn"):
            with self.subTest(name):
                model = self.make(name)
                self.export("state_dict")
                self.assert_same_state(torch.load(self.output, weights_only=True), model.state_dict())

    @torch.no_grad()
    def test_torchscript(self):
        model = self.make("resnet18")
        self.export("torchscript")
        script = torch.jit.load(self.output).eval()
        self.assert_same_state(script.state_dict(), model.state_dict())
        for batch_size in (1, 5):
            images = torch.randn(batch_size, 3, 64, 64)
            torch.testing.assert_close(script(images), model(images), rtol=1e-4, atol=1e-4)

    def test_safetensors(self):
        model = self.make("resnet18")
        self.export("safetensors")
        self.assert_same_state(dict(sorted(safetensors.torch.load_file(self.output).items())), dict(sorted(model.state_dict().items())))

    def test_averaged_parameters(self):
        model = self.make("resnet18")
        averaged = AveragedModel(model)
        with torch.no_grad():
            averaged.module.fc.weight.fill_(0.25)
        self.make("resnet18", ema=averaged.state_dict())
        self.export("state_dict", "--ema")
        self.assert_same_state(torch.load(self.output, weights_only=True), averaged.module.state_dict())

    def test_refused_exports(self):
        self.make("resnet18")
        self.assertIn(f"error: {self.checkpoint}: ema: does not contain averaged parameters", self.export("state_dict", "--ema", code=5))
        self.make("resnet18", model={"fc.bias": torch.zeros(10)})
        self.assertIn(f"error: {self.checkpoint} (model): does not fit the model: missing conv1.weight, ", self.export("state_dict", code=5))
        self.make("resnet18", config=CONFIG.format(name="resnet19"))
        self.assertIn(f'error: {self.checkpoint}: config:2:15: model.name: "resnet19" is not one of', self.export("state_dict", code=2))
        torch.save({"weight": torch.zeros(1)}, self.checkpoint)
        self.assertIn("this file holds weights but no experiment; give a checkpoint", self.export("state_dict", code=2))


if __name__ == "__main__":
    unittest.main()
