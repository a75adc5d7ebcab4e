"""A profile contains the operations that torch.profiler records in a training of the same network. TRAINER_BINARY is the program."""

import collections
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import torch
import torchvision
from torch.profiler import ProfilerActivity, profile

NUM_STEPS = 2
CONFIG = """
experiment: profile
model: {name: resnet18}
dataset: {name: synthetic, shape: [3, 64, 64], num_classes: 10, num_train: 32, num_validation: 8}
dataloader: {global_batch_size: 8}
optimizer: {name: sgd, lr: 0.01}
runtime: {device: cpu, convolution: direct, fuse: "off"}
amp: {enabled: false}
training: {epochs: 1}
logging: {profile_steps: [2, 4]}
"""
# The operations of the network and its loss; Python's loop does not measure an accuracy, for example.
OPERATIONS = {"aten::convolution", "aten::mkldnn_convolution", "aten::convolution_backward", "aten::native_batch_norm",
              "aten::native_batch_norm_backward", "aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices_backward", "aten::addmm",
              "aten::mm", "aten::threshold_backward", "aten::_log_softmax", "aten::nll_loss_forward", "aten::_fused_sgd_",
              "ConvolutionBackward0", "NativeBatchNormBackward0", "torch::autograd::AccumulateGrad"}


def profile_in_python():
    model = torchvision.models.resnet18(num_classes=10).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    images = torch.randn(8, 3, 64, 64).to(memory_format=torch.channels_last)
    labels = torch.arange(8)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(NUM_STEPS):
            step()
    return profiler.key_averages()


class ProfileTest(unittest.TestCase):
    def test_has_the_operations_of_python(self):
        with tempfile.TemporaryDirectory(prefix="trainer-profile-") as folder:
            config, run = pathlib.Path(folder) / "x.yaml", pathlib.Path(folder) / "run"
            config.write_text(CONFIG)
            result = subprocess.run([os.environ["TRAINER_BINARY"], "--config", config, "--run-dir", run], stderr=subprocess.PIPE, text=True,
                                    timeout=300)
            self.assertEqual(result.returncode, 0, result.stderr)
            events = json.loads((run / "profile.json").read_text())["traceEvents"]
        expected = profile_in_python()
        counts = collections.Counter(event["name"] for event in events if "dur" in event)
        self.assertEqual({name: counts[name] for name in OPERATIONS},
                         {operation.key: operation.count for operation in expected if operation.key in OPERATIONS})
        # The table lists the operations with the longest times. On a busy machine, any other operation can sometimes take long, also in
        # Python.
        table = dict(re.findall(r"^  (\S+) +(\d+) +\d+\.\d\d ms +\d+\.\d %$", result.stderr, re.MULTILINE))
        count_of = {operation.key: operation.count for operation in expected}
        for name in ("aten::convolution_backward", "aten::mkldnn_convolution"):
            self.assertEqual(table.get(name), str(count_of[name]), result.stderr)


if __name__ == "__main__":
    unittest.main()
