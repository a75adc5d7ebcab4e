"""examples/own_loop.cpp equals the same loop in Python on the same LibTorch, on two ranks in float64, and each continues the other's file.
examples/own_trainer.cpp resumes bit for bit, on one rank and on two.

Python's SyncBatchNorm does not support the CPU; the one here normalises by sums over the ranks, which autograd differentiates."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.multiprocessing

PROGRAMS = pathlib.Path(os.environ["TRAINER_BUILD_DIR"]) / "installed" / "build"
RANKS, EPOCHS = 2, 4


class SyncBatchNorm(torch.nn.BatchNorm2d):
    group = None

    def forward(self, x):
        total = lambda values: dist.nn.all_reduce(values.sum((0, 2, 3)), group=self.group)
        count = x.numel() // x.shape[1] * RANKS
        shape = (1, -1, 1, 1)
        mean = total(x) / count
        var = total((x - mean.view(shape)) ** 2) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * count / (count - 1), self.momentum)
            self.num_batches_tracked += 1
        normal = (x - mean.view(shape)) / torch.sqrt(var.view(shape) + self.eps)
        return normal * self.weight.view(shape) + self.bias.view(shape)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, 3, bias=False)
        self.norm = SyncBatchNorm(8)
        self.fc = torch.nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.norm(self.conv(x))).amax((2, 3)))


def train(rank, folder, first, epochs):
    """Writes FOLDER/python.pt after this many epochs; `first`: the file to continue from, or None."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    images = torch.rand(512, 1, 12, 12)
    labels = images.flatten(1)[:, :10].argmax(1)
    net = Net().double()
    net.norm.group = dist.new_group()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    epoch = 0
    if first:
        saved = torch.load(first, weights_only=True)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        epoch = saved["epoch"]
    parallel = torch.nn.parallel.DistributedDataParallel(net)
    sampler = torch.utils.data.DistributedSampler(images)
    while epoch < epochs:
        sampler.set_epoch(epoch)
        for batch in torch.tensor(list(sampler)).split(32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(parallel(images[batch].double()), labels[batch]).backward()
            optimizer.step()
        epoch += 1
    if rank == 0:
        scaler = {"scale": 1.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 8 * epoch}
        torch.save({"epoch": epoch, "model": net.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler}, folder / "python.pt")
    dist.destroy_process_group()


class ProgramTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, name, *args, ranks=RANKS, code=0):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--no-python"] if ranks > 1 else []
        run = subprocess.run([*launcher, PROGRAMS / name, *args], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(run.returncode, code, run.stderr)
        return run


class OwnLoopTest(ProgramTest):
    straight = None  # Python's results after all epochs

    def python(self, epochs, first=None):
        (self.folder / "store").unlink(missing_ok=True)
        torch.multiprocessing.spawn(train, (self.folder, first, epochs), nprocs=RANKS)
        return torch.load(self.folder / "python.pt", weights_only=True)

    def expected(self):
        cls = type(self)
        cls.straight = cls.straight or self.python(EPOCHS)
        return cls.straight

    def cpp(self, file, precision="float64", ranks=RANKS):
        """The printed lines of the program, and its file."""
        run = self.run_program("own_loop", file, precision, ranks=ranks)
        return [float(line) for line in run.stdout.splitlines()], torch.load(file, weights_only=True)

    def assert_near(self, ours, expected):
        self.assertEqual(ours["epoch"], expected["epoch"])
        self.assertEqual(list(ours["model"]), list(expected["model"]))
        momenta = lambda tree: [state["momentum_buffer"] for state in tree["optimizer"]["state"].values()]
        for one, other in [*zip(ours["model"].values(), expected["model"].values()), *zip(momenta(ours), momenta(expected), strict=True)]:
            # LibTorch's Module::to(dtype) also converts num_batches_tracked.
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12, check_dtype=False)

    def test_the_loop_equals_pythons(self):
        losses, ours = self.cpp(self.folder / "cpp.pt")
        self.assertEqual(len(losses), EPOCHS * 512 // RANKS // 32)
        self.assert_near(ours, self.expected())

    def test_each_continues_the_others_file(self):
        half = self.folder / "half.pt"
        torch.save(self.python(2), half)
        losses, ours = self.cpp(half)
        self.assertEqual(len(losses), (EPOCHS - 2) * 512 // RANKS // 32)
        self.assert_near(ours, self.expected())
        self.assert_near(self.python(EPOCHS + 1, half), self.python(EPOCHS + 1))

    def test_one_process_and_other_precisions(self):
        losses, _ = self.cpp(self.folder / "one.pt", "float32", ranks=1)
        self.assertLess(sum(losses[-16:]), sum(losses[:16]))
        for precision in ("bfloat16", "float16"):
            losses, _ = self.cpp(self.folder / f"{precision}.pt", precision)
            self.assertTrue(all(0 < loss < 4 for loss in losses), losses)


def losses_of(run):
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(event["step"], event["loss"]) for event in events if event["event"] in ("train", "validation")]


class OwnTrainerTest(ProgramTest):
    def test_it_learns_and_resumes_bit_for_bit(self):
        for ranks in (1, 2):
            straight, resumed = self.folder / f"straight{ranks}", self.folder / f"resumed{ranks}"
            run = self.run_program("own_trainer", straight, ranks=ranks)
            self.assertEqual(run.stdout.splitlines(), ["done 1.000000"] * ranks)  # all ranks have the result
            printed = run.stderr
            self.assertEqual(printed.count("epoch 3/3  step 31/31"), 1, "rank 0 alone prints:\n" + printed)
            self.assertIn("validation/top1  final 100.00%", printed)
            first, *others, last = sorted((straight / "checkpoints").glob("step_*.pt"))
            shutil.copytree(straight, resumed, symlinks=True)
            # As if the run had ended after its first checkpoint.
            for name in ("last.pt", "best.pt", last.name, *(file.name for file in others)):
                (resumed / "checkpoints" / name).unlink()
            (resumed / "summary.json").unlink()
            self.run_program("own_trainer", resumed, ranks=ranks)
            ours, theirs = (torch.load(folder / "checkpoints" / last.name, weights_only=True) for folder in (resumed, straight))
            self.assertEqual(losses_of(resumed), losses_of(straight))
            self.assertIn("is complete; raise training.epochs", self.run_program("own_trainer", straight, ranks=1, code=1).stderr)
            self.assertEqual(list(ours["model"]), list(theirs["model"]))
            for name, value in ours["model"].items():
                self.assertTrue(torch.equal(value, theirs["model"][name]), name)


if __name__ == "__main__":
    unittest.main()
