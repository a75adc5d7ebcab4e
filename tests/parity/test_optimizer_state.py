"""Optimizers and averaged parameters of Python on the same LibTorch resume from the program's files, and vice versa. The source of
parity_optimizer_state explains the files; tests/golden/make_optimizers.py defines the problem."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("golden", "testing")]
from make_optimizers import SHAPES, pattern, set_gradients
from program import FolderCase

PROGRAM = pathlib.Path(os.environ["TRAINER_BINARY"]).with_name("parity_optimizer_state")
SGD, Adam, AdamW, RMSprop = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop
CASES = [
    (SGD, {"lr": 0.1, "weight_decay": 0.02}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.25, "weight_decay": 0.02}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (Adam, {"lr": 0.01, "betas": [0.8, 0.95], "eps": 1e-3, "weight_decay": 0.1}),
    (AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    (RMSprop, {"lr": 0.01}),
    (RMSprop, {"lr": 0.01, "alpha": 0.8, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.9, "centered": True}),
]
GROUPS = {
    "two_groups": lambda weight, bias, unused, lr: [{"params": [weight]}, {"params": [bias, unused], "weight_decay": 0.0}],
    "own_options": lambda weight, bias, unused, lr: [{"params": [weight, unused]}, {"params": [bias], "lr": lr / 4, "weight_decay": 0.125}],
}
EACH = [(kind, options, groups) for kind, options in CASES for groups in GROUPS]
EMA = {"decay": 0.6, "warmup": False}
BEFORE, AFTER = 3, 5


class Problem(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for index, (name, shape) in enumerate(SHAPES.items()):
            self.register_parameter(name, torch.nn.Parameter(pattern(shape, index)))


class Training:
    """The problem of the program in Python; `file`: the state from which it resumes."""

    def __init__(self, kind, options, groups, file=None):
        self.model = Problem()
        self.optimizer = kind(GROUPS[groups](*self.model.parameters(), lr=options["lr"]), **options)
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(EMA["decay"]))
        self.update = 0
        if file:
            state = torch.load(file, weights_only=True)
            self.update = state["update"]
            self.model.load_state_dict(state["parameters"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.ema.load_state_dict(state["ema"])

    def train(self, updates):
        for self.update in range(self.update, self.update + updates):
            set_gradients(dict(self.model.named_parameters()), self.update, first_update_of_bias=1)
            self.optimizer.step()
            self.ema.update_parameters(self.model)
        self.update += 1
        return self

    def state(self):
        return {
            "update": self.update,
            "parameters": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "ema": dict(self.ema.state_dict()),
        }


class OptimizerStateTest(FolderCase):
    def program(self, kind, options, groups, updates, file="-"):
        """Runs `updates` updates of the program; returns the file with the resulting state."""
        keys = json.dumps({"name": kind.__name__.lower(), **options})
        subprocess.run([PROGRAM, keys, json.dumps(EMA), groups, str(updates), file, self.folder / "program.pt"], check=True)
        return self.folder / "program.pt"

    def assert_close(self, actual, expected, path=""):
        if isinstance(expected, dict):
            self.assertEqual(list(actual), list(expected), path)
            for key, value in expected.items():
                self.assert_close(actual[key], value, f"{path}.{key}")
        elif isinstance(expected, (list, tuple)):
            self.assertEqual(len(actual), len(expected), path)
            for index, value in enumerate(expected):
                self.assert_close(actual[index], value, f"{path}[{index}]")
        elif isinstance(expected, torch.Tensor):
            torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12, msg=lambda text: f"{path}: {text}")
        else:
            self.assertEqual(actual, expected, path)

    def check(self, kind, options, groups, actual):
        expected = Training(kind, options, groups).train(BEFORE + AFTER).state()
        for state in (actual, expected):
            state["optimizer"]["param_groups"] = [dict(sorted(group.items())) for group in state["optimizer"]["param_groups"]]
        self.assert_close(actual, expected)

    def test_python_resumes(self):
        for case in EACH:
            with self.subTest(case):
                training = Training(*case, self.program(*case, BEFORE))
                self.check(*case, training.train(AFTER).state())

    def test_the_program_resumes(self):
        for case in EACH:
            with self.subTest(case):
                torch.save(Training(*case).train(BEFORE).state(), self.folder / "python.pt")
                program = self.program(*case, AFTER, self.folder / "python.pt")
                self.check(*case, torch.load(program, weights_only=True))


if __name__ == "__main__":
    unittest.main()
