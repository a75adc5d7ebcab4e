"""Python resumes from a checkpoint of a run; its next losses equal those of the program when it resumes. TRAINER_BINARY is the program."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import torch
import torch.nn.functional as F
from torch.utils.data.distributed import DistributedSampler

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "golden"), str(ROOT / "tests" / "testing")]
from networks import NETWORKS
from program import FolderCase

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.001, "weight_decay": 0.01}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.001, "momentum": 0.9, "centered": True, "weight_decay": 0.01}),
}
# An epoch has fifty steps.
NETWORK, SEED, BATCH, BEFORE, AFTER = "demo_conv", 3, 40, 45, 5
# Two epochs of twenty steps, with a checkpoint between them.
SCHEDULE_BATCH, STEPS_PER_EPOCH, TOTAL_STEPS, WARMUP_STEPS, LR = 100, 20, 40, 10, 0.01
schedulers = torch.optim.lr_scheduler
SCHEDULES = {
    "{name: constant}": lambda optimizer: schedulers.ConstantLR(optimizer, factor=1),
    "{name: step, step_epochs: 1, gamma: 0.5}": lambda optimizer: schedulers.StepLR(optimizer, STEPS_PER_EPOCH, gamma=0.5),
    "{name: multistep, milestones: [0.5, 1.25], gamma: 0.5}": lambda optimizer: schedulers.MultiStepLR(optimizer, [10, 25], gamma=0.5),
    "{name: cosine, final_factor: 0.1}": lambda optimizer: schedulers.CosineAnnealingLR(optimizer, TOTAL_STEPS, eta_min=0.1 * LR),
    "{name: linear, end_factor: 0.1}": lambda optimizer: schedulers.LinearLR(optimizer, 1, 0.1, total_iters=TOTAL_STEPS),
    "{name: polynomial, power: 2}": lambda optimizer: schedulers.PolynomialLR(optimizer, TOTAL_STEPS, power=2),
    "{name: onecycle}": lambda optimizer: schedulers.OneCycleLR(optimizer, LR, total_steps=TOTAL_STEPS, cycle_momentum=False),
    f"{{name: cosine, warmup_steps: {WARMUP_STEPS}, warmup_start_factor: 0.2}}": lambda optimizer: schedulers.SequentialLR(
        optimizer, [schedulers.LinearLR(optimizer, 0.2, total_iters=WARMUP_STEPS),
                    schedulers.CosineAnnealingLR(optimizer, TOTAL_STEPS - WARMUP_STEPS)], [WARMUP_STEPS]),
}


# One frozen parameter, and one group with a quarter of the learning rate and its own weight decay.
GROUPS = ["model.freeze=[conv.bias]", "optimizer.groups=[{parameters: [conv], lr_factor: 0.25, weight_decay: 0.0}]"]
GROUP_LRS = [LR, LR / 4]
GROUP_SCHEDULES = {
    "{name: polynomial, power: 2}": lambda optimizer: schedulers.PolynomialLR(optimizer, TOTAL_STEPS, power=2),
    "{name: onecycle}": lambda optimizer: schedulers.OneCycleLR(optimizer, GROUP_LRS, total_steps=TOTAL_STEPS, cycle_momentum=False),
    f"{{name: linear, warmup_steps: {WARMUP_STEPS}, warmup_start_factor: 0.2}}": lambda optimizer: schedulers.SequentialLR(
        optimizer, [schedulers.LinearLR(optimizer, 0.2, total_iters=WARMUP_STEPS),
                    schedulers.LinearLR(optimizer, 1, 0, total_iters=TOTAL_STEPS - WARMUP_STEPS)], [WARMUP_STEPS]),
}


def one_group(network, lr):
    return [{"params": list(network.parameters())}]


def two_groups(network, lr):
    """The parameter groups of GROUPS."""
    network.conv.bias.requires_grad_(False)
    return [{"params": list(network.fc.parameters())}, {"params": [network.conv.weight], "lr": lr / 4, "weight_decay": 0.0}]


def resume_scheduler(scheduler, state):
    """`state`: the state in the checkpoint. A SequentialLR has no state of its own except its number of steps."""
    if not isinstance(scheduler, schedulers.SequentialLR):
        scheduler.load_state_dict(state)
        return
    scheduler.optimizer.step()
    for _ in range(state["last_epoch"]):
        scheduler.step()
DATA = ROOT / "datasets" / "cifar10_sample" / "cifar-10-batches-bin"


def read_samples():
    """[N, 3, 32, 32] and [N], in the order of the files."""
    rows = torch.cat([torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).view(-1, 3073) for path in sorted(DATA.glob("data_batch_*.bin"))])
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


class ContinuedRunTest(FolderCase):
    def train(self, run_dir, optimizer, options, *args, batch=BATCH):
        """Trains and returns the loss of each step."""
        keys = ", ".join([f"name: {optimizer}", *(f"{key}: {str(value).lower()}" for key, value in options.items())])
        command = [os.environ["TRAINER_BINARY"], "--config", ROOT / "configs" / "quickstart.yaml", "--run-dir", run_dir, f"model={{name: {NETWORK}}}",
                   f"seed={SEED}", "dataset.train_transforms=[]", "dataset.validation_transforms=[]", f"optimizer={{{keys}}}", "lr_scheduler={name: constant}",
                   f"dataloader={{batch_size: {batch}, global_batch_size: null}}", "runtime={device: cpu, dtype: float64, threads: 1, channels_last: false}",
                   "training.epochs=1", "logging.every_steps=1", *args]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        events = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
        return [event["loss"] for event in events if event["event"] == "train"]

    def python_losses(self, file, optimizer, options, batch_size=BATCH, make_scheduler=None, observed=None, make_groups=one_group):
        """`observed`: the value that the scheduler gets after a step, by the number of that step; None: the scheduler is stepped after each
        step."""
        state = torch.load(file, weights_only=True)
        network = NETWORKS[NETWORK]().double()
        network.load_state_dict(state["model"])
        optimizer = OPTIMIZERS[optimizer][0](make_groups(network, options["lr"]), **options)
        if make_scheduler:
            resume_scheduler(scheduler := make_scheduler(optimizer), state["lr_scheduler"])
        optimizer.load_state_dict(state["optimizer"])
        images, labels = read_samples()
        sampler = DistributedSampler(range(len(images)), num_replicas=1, rank=0, seed=SEED)
        sampler.set_epoch(state["epoch"])
        losses = []
        for batch in torch.tensor(list(sampler))[state["samples_in_epoch"]:].split(batch_size):
            optimizer.zero_grad()
            loss = F.cross_entropy(network(images[batch].double() / 255), labels[batch])
            loss.backward()
            optimizer.step()
            if make_scheduler and observed is None:
                scheduler.step()
            elif observed and (value := observed.get(state["step"] + len(losses) + 1)) is not None:
                scheduler.step(value)
            losses.append(loss.item())
        return losses

    def check_scheduler(self, state, make_scheduler, lrs=(LR,)):
        """The checkpoint contains the state of torch's scheduler and its optimizer after the same number of steps. `lrs`: the learning rate
        of each group."""
        optimizer = torch.optim.SGD([{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in lrs], lr=LR)
        scheduler = make_scheduler(optimizer)
        optimizer.step()
        for _ in range(state["lr_scheduler"]["last_epoch"]):
            scheduler.step()
        of_torch = scheduler.state_dict()
        if isinstance(scheduler, schedulers.SequentialLR):
            # A SequentialLR has no step count and base rates of its own. The checkpoint has the values of get_last_lr() and of a plain
            # scheduler.
            of_torch |= {"_step_count": of_torch["last_epoch"] + 1, "base_lrs": list(lrs)}
        for key, value in state["lr_scheduler"].items():
            self.assertEqual(torch.tensor(value).shape, torch.tensor(of_torch[key]).shape, key)
            torch.testing.assert_close(torch.tensor(value, dtype=torch.float64), torch.tensor(of_torch[key], dtype=torch.float64), rtol=1e-12, atol=0)
        groups = state["optimizer"]["param_groups"]
        self.assertEqual(len(groups), len(lrs))
        for group, group_of_torch in zip(groups, optimizer.param_groups):
            for key in {"lr", "initial_lr", "max_lr", "min_lr"} & {*group, *group_of_torch}:
                self.assertAlmostEqual(group[key] / group_of_torch[key], 1, delta=1e-12, msg=key)

    def assert_close(self, python, ours, num_steps):
        self.assertEqual((len(ours), len(python)), (num_steps, num_steps))
        torch.testing.assert_close(torch.tensor(python, dtype=torch.float64), torch.tensor(ours, dtype=torch.float64), rtol=1e-9, atol=0)

    def test_python_resumes(self):
        for optimizer, (_, options) in OPTIMIZERS.items():
            with self.subTest(optimizer):
                first = self.folder / optimizer
                self.train(first, optimizer, options, f"checkpoint={{every_steps: {BEFORE}, keep_last: 100}}")
                file = first / "checkpoints" / f"step_{BEFORE:08}.pt"
                ours = self.train(self.folder / f"{optimizer}-continued", optimizer, options, "--resume", file)
                python = self.python_losses(file, optimizer, options)
                self.assert_close(python, ours, AFTER)

    def test_python_continues_each_schedule(self):
        options = {"lr": LR, "momentum": 0.9}
        for number, (schedule, make_scheduler) in enumerate(SCHEDULES.items()):
            with self.subTest(schedule):
                run_dir = self.folder / str(number)
                ours = self.train(run_dir, "sgd", options, f"lr_scheduler={schedule}", "training.epochs=2", "checkpoint.every_epochs=1",
                                  "validation.every_epochs=2", batch=SCHEDULE_BATCH)
                file = run_dir / "checkpoints" / f"step_{STEPS_PER_EPOCH:08}.pt"
                self.check_scheduler(torch.load(file, weights_only=True), make_scheduler)
                python = self.python_losses(file, "sgd", options, SCHEDULE_BATCH, make_scheduler)
                self.assert_close(python, ours[STEPS_PER_EPOCH:], STEPS_PER_EPOCH)

    def test_python_continues_reduce_on_plateau(self):
        options = {"lr": LR, "momentum": 0.9}
        run_dir = self.folder / "run"
        # With this threshold, no validation counts as better than the first one.
        ours = self.train(run_dir, "sgd", options, "lr_scheduler={name: reduce_on_plateau, factor: 0.5, patience: 1, threshold: 100, threshold_mode: abs}",
                          "training.epochs=2", "validation.every_steps=4", "checkpoint.keep_last=100", batch=SCHEDULE_BATCH)
        file = run_dir / "checkpoints" / f"step_{STEPS_PER_EPOCH:08}.pt"
        lines = list(map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines()))
        observed = {line["step"]: line["top1"] for line in lines if line["event"] == "validation" and line["step"] > STEPS_PER_EPOCH}
        self.assertEqual(list(observed), [24, 28, 32, 36, 40])
        self.assertEqual([line["lr"] for line in lines if line["event"] == "train"][::4], [LR] * 3 + [LR / 2] * 2 + [LR / 4] * 2 + [LR / 8] * 2 + [LR / 16])
        python = self.python_losses(file, "sgd", options, SCHEDULE_BATCH, lambda optimizer: schedulers.ReduceLROnPlateau(
            optimizer, "max", factor=0.5, patience=1, threshold=100, threshold_mode="abs"), observed)
        self.assert_close(python, ours[STEPS_PER_EPOCH:], STEPS_PER_EPOCH)

    def test_python_continues_groups_and_frozen_parameters(self):
        options = {"lr": LR, "momentum": 0.9, "weight_decay": 5e-4}
        for number, (schedule, make_scheduler) in enumerate(GROUP_SCHEDULES.items()):
            with self.subTest(schedule):
                run_dir = self.folder / str(number)
                ours = self.train(run_dir, "sgd", options, *GROUPS, f"lr_scheduler={schedule}", "training.epochs=2", "checkpoint.every_epochs=1",
                                  "validation.every_epochs=2", batch=SCHEDULE_BATCH)
                file = run_dir / "checkpoints" / f"step_{STEPS_PER_EPOCH:08}.pt"
                state = torch.load(file, weights_only=True)
                self.assertEqual([group["params"] for group in state["optimizer"]["param_groups"]], [[0, 1], [2]])
                self.assertEqual([group["weight_decay"] for group in state["optimizer"]["param_groups"]], [5e-4, 0])
                self.check_scheduler(state, make_scheduler, GROUP_LRS)
                python = self.python_losses(file, "sgd", options, SCHEDULE_BATCH, make_scheduler, make_groups=two_groups)
                self.assert_close(python, ours[STEPS_PER_EPOCH:], STEPS_PER_EPOCH)


if __name__ == "__main__":
    unittest.main()
