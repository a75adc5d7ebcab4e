"""TensorBoard reads the same scalars from a run's event file as metrics.jsonl has. TRAINER_BINARY is the program."""

import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SCALARS = {"train": ("loss", "top1", "lr", "images_per_second"), "validation": ("loss", "top1", "top5")}


def float32(value):
    """The nearest float32, which is what an event file holds."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def scalars_of_metrics(path):
    """tag -> [(step, value)], in the order of the lines."""
    scalars = {}
    for line in path.read_text().splitlines():
        event = json.loads(line)
        for name in SCALARS.get(event["event"], ()):
            if name in event:
                scalars.setdefault(f"{event['event']}/{name}", []).append((event["step"], float32(event[name])))
    return scalars


def scalars_of_events(folder):
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


class TensorboardTest(unittest.TestCase):
    def test_reads_every_scalar_of_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            run = pathlib.Path(folder) / "run"
            command = [os.environ["TRAINER_BINARY"], "--config", REPOSITORY / "configs" / "demo_linear.yaml", "--run-dir", run]
            result = subprocess.run(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True, timeout=300)
            self.assertEqual(result.returncode, 0, result.stderr)
            expected = scalars_of_metrics(run / "metrics.jsonl")
            self.assertIn("train/loss", expected)
            self.assertIn("validation/loss", expected)
            self.assertEqual(scalars_of_events(run / "tensorboard"), expected)


if __name__ == "__main__":
    unittest.main()
