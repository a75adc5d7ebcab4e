"""Python resumes from a checkpoint of a run; its next losses equal those of the program when it resumes. TRAINER_BINARY is the program."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.nn.functional as F
from torch.utils.data.distributed import DistributedSampler

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "golden"))
from networks import NETWORKS

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.001, "weight_decay": 0.01}),
}
# An epoch has fifty steps.
NETWORK, SEED, BATCH, BEFORE, AFTER = "demo_conv", 3, 40, 45, 5
DATA = ROOT / "datasets" / "cifar10_sample" / "cifar-10-batches-bin"


def read_samples():
    """[N, 3, 32, 32] and [N], in the order of the files."""
    rows = torch.cat([torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).view(-1, 3073) for path in sorted(DATA.glob("data_batch_*.bin"))])
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


class ContinuedRunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-parity-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, run_dir, optimizer, options, *args):
        """Trains and returns the loss of each step."""
        keys = ", ".join([f"name: {optimizer}", *(f"{key}: {str(value).lower()}" for key, value in options.items())])
        command = [os.environ["TRAINER_BINARY"], "--config", ROOT / "configs" / "quickstart.yaml", "--run-dir", run_dir, f"model={{name: {NETWORK}}}",
                   f"seed={SEED}", "dataset.train_transforms=[]", "dataset.validation_transforms=[]", f"optimizer={{{keys}}}", "lr_scheduler={name: constant}",
                   f"dataloader={{batch_size: {BATCH}, global_batch_size: null}}", "runtime={device: cpu, dtype: float64, threads: 1, channels_last: false}",
                   "training.epochs=1", "logging.every_steps=1", *args]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        events = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
        return [event["loss"] for event in events if event["event"] == "train"]

    def python_losses(self, file, optimizer, options):
        state = torch.load(file, weights_only=True)
        network = NETWORKS[NETWORK]().double()
        network.load_state_dict(state["model"])
        groups = state["optimizer"]["param_groups"]
        parameters = list(network.parameters())
        kind = OPTIMIZERS[optimizer][0]
        optimizer = kind([{"params": [parameters[i] for i in group["params"]]} for group in groups], **options)
        optimizer.load_state_dict(state["optimizer"])
        images, labels = read_samples()
        sampler = DistributedSampler(range(len(images)), num_replicas=1, rank=0, seed=SEED)
        sampler.set_epoch(state["epoch"])
        losses = []
        for batch in torch.tensor(list(sampler))[state["samples_in_epoch"]:].split(BATCH):
            optimizer.zero_grad()
            loss = F.cross_entropy(network(images[batch].double() / 255), labels[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_python_resumes(self):
        for optimizer, (_, options) in OPTIMIZERS.items():
            with self.subTest(optimizer):
                first = self.folder / optimizer
                self.train(first, optimizer, options, f"checkpoint={{every_steps: {BEFORE}, keep_last: 100}}")
                file = first / "checkpoints" / f"step_{BEFORE:08}.pt"
                ours = self.train(self.folder / f"{optimizer}-continued", optimizer, options, "--resume", file)
                python = self.python_losses(file, optimizer, options)
                self.assertEqual((len(ours), len(python)), (AFTER, AFTER))
                torch.testing.assert_close(torch.tensor(python, dtype=torch.float64), torch.tensor(ours, dtype=torch.float64), rtol=1e-9, atol=0)


if __name__ == "__main__":
    unittest.main()
