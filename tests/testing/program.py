"""Runs of the program as a user starts it. TRAINER_BINARY is the program."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["TRAINER_BINARY"]
LINEAR = ROOT / "configs" / "demo_linear.yaml"
IMAGES = ["--config", ROOT / "configs" / "quickstart.yaml", "training.epochs=1", "dataloader.global_batch_size=500", "logging.every_steps=1"]


def start(*args, cwd=ROOT, **options):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([BINARY, *map(str, args)], cwd=cwd, **pipes, **options)


def trainer(*args, **options):
    process = start(*args, **options)
    process.out, process.err = process.communicate(timeout=120)
    return process


def events(run_dir, kind=None):
    """The events of a run, or those of one kind."""
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if kind in (None, line["event"])]


class FolderCase(unittest.TestCase):
    """A test case with a temporary folder and the path of a run directory in it, which does not exist yet."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_dir = self.folder / "run"

    def ran(self, *args, **options):
        """Runs the program, which has to succeed."""
        process = trainer(*args, **options)
        self.assertEqual(process.returncode, 0, process.err)
        return process


class ProgramCase(FolderCase):
    def train(self, *args, **options):
        return trainer(*args, "--run-dir", self.run_dir, **options)

    def trained(self, *args, **options):
        return self.ran(*args, "--run-dir", self.run_dir, **options)
