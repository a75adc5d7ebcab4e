"""One loss of a float16 run is NaN: the program acts like Python's training loop with torch.amp.GradScaler. TRAINER_BINARY is the program,
TRAINER_FAULTS the library that makes the loss NaN."""

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
sys.path[:0] = [str(ROOT / "tests" / "golden"), str(ROOT / "tests" / "parity")]
from networks import NETWORKS
from test_continued_run import read_samples

NETWORK, SEED, BATCH, NUM_STEPS, PLANTED = "demo_conv", 3, 100, 20, 7
# The scale grows after every fourth step without an overflow.
SCALER = {"init_scale": 1024.0, "growth_interval": 4}


class NonFiniteLossTest(unittest.TestCase):
    def train(self, folder, initial):
        """Returns {step: (scale, number of skipped steps, loss)} and the last checkpoint."""
        scaler = ", ".join(f"{key}: {value}" for key, value in SCALER.items())
        command = [os.environ["TRAINER_BINARY"], "--config", ROOT / "configs" / "quickstart.yaml", "--run-dir", folder, f"model={{name: {NETWORK}}}",
                   f"model.init_from={initial}", f"seed={SEED}", "dataset.train_transforms=[]", "dataset.validation_transforms=[]",
                   "optimizer={name: sgd, lr: 0.01, momentum: 0.9}", "lr_scheduler={name: constant}",
                   f"dataloader={{batch_size: {BATCH}, global_batch_size: null}}", "runtime={device: cpu, threads: 1, channels_last: false}",
                   f"amp={{enabled: true, dtype: float16, {scaler}}}", "training.epochs=1", "logging.every_steps=1"]
        environment = {**os.environ, "LD_PRELOAD": os.environ["TRAINER_FAULTS"], "TRAINER_TEST_FAULT": f"0 training {PLANTED} nan",
                       "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        trace = {event["step"]: (event["grad_scale"], event["skipped_steps"], event["loss"]) for event in events if event["event"] == "train"}
        return trace, torch.load(folder / "checkpoints" / "last.pt", weights_only=True)

    def train_in_python(self, network):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", **SCALER)
        images, labels = read_samples()
        order = torch.tensor(list(DistributedSampler(range(len(images)), num_replicas=1, rank=0, seed=SEED)))
        trace, num_skipped = {}, 0
        for step, batch in enumerate(order.split(BATCH)):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(network(images[batch].float() / 255), labels[batch])
            scaler.scale(loss * float("nan") if step == PLANTED else loss).backward()
            scaler.step(optimizer)
            before = scaler.get_scale()
            scaler.update()
            num_skipped += scaler.get_scale() < before
            trace[step + 1] = (scaler.get_scale(), num_skipped, loss.item())
        return trace, scaler.state_dict()

    def test_one_step_is_skipped_and_the_scale_is_halved_once(self):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        network = NETWORKS[NETWORK]()
        with tempfile.TemporaryDirectory(prefix="trainer-parity-") as folder:
            initial = pathlib.Path(folder) / "initial.pt"
            torch.save(network.state_dict(), initial)
            ours, checkpoint = self.train(pathlib.Path(folder) / "run", initial)
        python, scaler_state = self.train_in_python(network)
        # The program reports no loss for the step that has none.
        self.assertEqual(set(ours), set(range(1, NUM_STEPS + 1)) - {PLANTED + 1})
        self.assertEqual(len(python), NUM_STEPS)
        self.assertEqual({step: row[:2] for step, row in ours.items()}, {step: python[step][:2] for step in ours})
        self.assertEqual(python[NUM_STEPS][1], 1)
        self.assertEqual({key: checkpoint["grad_scaler"][key] for key in scaler_state}, scaler_state)
        # The program and Python multiply by the scale in different orders, and round to float16 afterwards.
        for step, (_, _, loss) in ours.items():
            self.assertAlmostEqual(loss, python[step][2], delta=1e-3)
        for name, tensor in network.state_dict().items():
            torch.testing.assert_close(checkpoint["model"][name], tensor, rtol=0, atol=1e-3)


if __name__ == "__main__":
    unittest.main()
