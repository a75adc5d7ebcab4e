"""A slow rank is reported with the part of its work that is slow. TRAINER_BINARY is the program, TRAINER_FAULTS the library that makes
ranks slow."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# 12 steps in four intervals; the first interval is not checked. A step takes some hundredths of a second, on a slow rank half a second
# more.
SETTINGS = ["--config", ROOT / "configs/quickstart.yaml", "runtime.device=cpu", "dataset.validation_split=0.925", "training.epochs=1",
            "dataloader={global_batch_size: 12, prefetch: 1}", "logging.every_steps=3", "validation.batch_size=600"]
CONV = "model={name: demo_conv, num_classes: 10}"


class StragglerTest(unittest.TestCase):
    def warnings(self, fault, *settings):
        """The messages of all warnings in a run of three ranks."""
        with tempfile.TemporaryDirectory(prefix="trainer-straggler-") as folder:
            run_dir = pathlib.Path(folder) / "run"
            env = {**os.environ, "LD_PRELOAD": os.environ["TRAINER_FAULTS"], "TRAINER_TEST_FAULT": fault, "OMP_NUM_THREADS": "1"}
            command = [os.environ["TRAINER_BINARY"], "launch", "--nproc-per-node", "3", *SETTINGS, *settings, "--run-dir", run_dir]
            run = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
            self.assertEqual(run.returncode, 0, run.stderr)
            lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
            messages = [line["message"] for line in lines if line["event"] == "warning"]
            self.assertEqual([line.removeprefix("warning: ") for line in run.stderr.splitlines() if "warning: " in line], messages)
            log = (run_dir / "train.log").read_text()
            self.assertEqual(log.count(" warning: "), len(messages), log)
            # If loading is slow, there is also advice about it.
            return [message for message in messages if not message.startswith("training waited for data")]

    def assert_named(self, fault, rank, cause, *settings):
        said = self.warnings(fault, *settings)
        # In the last interval, a warning may be missing, because the loader may have prepared some of its batches earlier.
        self.assertGreaterEqual(len(said), 2, said)
        for line in said:
            self.assertRegex(line, rf"^rank {rank} \(process \d+ on \S+, cpu\) is slow: .*; the largest difference is in its {cause} time \(")

    def test_slow_in_compute(self):
        self.assert_named("1 training 0 slow", 1, "compute", CONV)

    def test_slow_in_loading(self):
        self.assert_named("2 loading 0 slow", 2, "data", CONV)

    def test_slow_with_waits_inside_own_work(self):
        """Ranks wait for each other's batch statistics, or for rank 0's running statistics at the beginning of a step."""
        self.assert_named("1 training 0 slow", 1, "compute")
        self.assert_named("0 loading 0 slow", 0, "data", "distributed.sync_batch_norm=false")

    def test_no_warning_if_all_ranks_are_equally_slow(self):
        self.assertEqual(self.warnings("all training 0 slow", CONV), [])
        # A rank that has one more batch ready waits once less, which would be a large difference in an interval of few steps.
        self.assertEqual(self.warnings("all loading 0 slow", CONV, "logging.every_steps=6"), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
