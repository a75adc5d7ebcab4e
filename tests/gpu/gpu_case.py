"""A test case for runs of the program on an NVIDIA GPU. Without a GPU it is skipped, or fails under TRAINER_REQUIRE_GPU=1. TRAINER_BINARY
is the program, TRAINER_FAULTS the library of tests/e2e/faults.cpp."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from equal_runs import ENVIRONMENT, results_of, tensors  # noqa: E402
from gpus import visible_gpus  # noqa: E402
from launches import BINARY, CONFIG, FAULTS, ROOT  # noqa: E402

# Only a run that hangs takes longer than this limit.
LIMIT_SECONDS = 180
# The tolerance for equal float64 computations in another order: losses differ by rounding errors of about 1e-15, which each of the few
# steps amplifies a little.
ROUNDING = 1e-8


def launcher(num_ranks):
    return ("launch", "--nproc-per-node", str(num_ranks))


TWO_RANKS = launcher(2)
RESNET = ["model={name: resnet20}", "lr_scheduler={name: constant}", "optimizer.lr=0.001", "training.epochs=1", "logging.every_steps=1"]


def synthetic(num_train):
    """Random images of CIFAR's shape with random classes, so that runs can be as short as a test needs."""
    return [f"dataset={{name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: {num_train}, num_validation: 20}}",
            "dataset.train_transforms=[]", "dataset.validation_transforms=[]"]


# Four steps in float64.
EXACT = [*RESNET, *synthetic(80), "dataloader.global_batch_size=20", "runtime.dtype=float64"]


def num_gpus():
    return len(visible_gpus()[0])


def need_gpus(number):
    """Skips a test class that needs more GPUs than there are. Without any GPU, the class fails under TRAINER_REQUIRE_GPU=1."""
    if num_gpus() >= number:
        return
    reason = visible_gpus()[1] or f"needs {number} GPUs, and this process may use {num_gpus()}"
    if num_gpus() == 0 and os.environ.get("TRAINER_REQUIRE_GPU") == "1":
        raise AssertionError(f"TRAINER_REQUIRE_GPU=1, but {reason}")
    raise unittest.SkipTest(reason)


def first_gpus(number):
    """The environment variables with which a run sees only that many GPUs."""
    if number >= num_gpus():
        return {}
    names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(number))))
    return {"CUDA_VISIBLE_DEVICES": ",".join(names.split(",")[:number])}


class Run:
    """The files and output of a run."""

    def __init__(self, folder, process):
        self.folder, self.status, self.err = folder, process.returncode, process.stderr

    def events(self, kind):
        lines = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["event"] == kind]

    def losses(self):
        return [event["loss"] for event in self.events("train")]

    def devices(self):
        """The device of each rank."""
        return [rank["device"] for rank in json.loads((self.folder / "environment.json").read_text())["ranks"]]


class GpuCase(unittest.TestCase):
    NUM_GPUS = 1

    @classmethod
    def setUpClass(cls):
        need_gpus(cls.NUM_GPUS)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-gpu-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.num_runs = 0

    def begin(self, *args, visible=1, variables=None):
        """Starts the program with this many GPUs. `variables`: additional environment variables."""
        env = {**ENVIRONMENT, **first_gpus(visible), **(variables or {})}
        return subprocess.Popen([BINARY, *map(str, args)], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def call(self, *args, **options):
        """Runs the program to its end."""
        with self.begin(*args, **options) as process:
            try:
                out, err = process.communicate(timeout=LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"no end within {LIMIT_SECONDS} s:\n{process.communicate()[1]}") from None
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *overrides, device="cuda", launcher=(), **options):
        """Trains in a new run directory, to the end or to a failure."""
        self.num_runs += 1
        folder = self.folder / f"run_{self.num_runs}"
        process = self.call(*launcher, "--config", CONFIG, "--run-dir", folder, *overrides, f"runtime.device={device}", **options)
        return Run(folder, process)

    def train(self, *overrides, device="cuda", devices=None, **options):
        """Trains to the end, and checks that the ranks have used these devices; by default one rank, on the only GPU that it sees."""
        run = self.start(*overrides, device=device, **options)
        self.assertEqual(run.status, 0, run.err)
        self.assertEqual(run.devices(), devices or ["cpu" if device == "cpu" else "cuda:0"])
        return run

    def train_two_ranks(self, *overrides, fault="", **options):
        """Two ranks share the GPU, which gloo allows. `fault`: see tests/e2e/faults.h."""
        variables = {"LD_PRELOAD": FAULTS, "TRAINER_TEST_FAULT": fault} if fault else None
        return self.train(*overrides, "distributed.backend=gloo", launcher=TWO_RANKS, devices=["cuda:0", "cuda:0"], variables=variables,
                          **options)

    def assert_near(self, values, others, bound=ROUNDING):
        self.assertEqual(len(values), len(others))
        self.assertGreater(len(values), 0)
        for a, b in zip(values, others):
            self.assertLessEqual(abs(a - b), bound, f"{values}\n{others}")

    def assert_equal_runs(self, run, other):
        """Compares the runs bit for bit."""
        self.assertEqual(results_of(run.folder), results_of(other.folder))
        self.assertEqual(tensors(run.folder), tensors(other.folder))
