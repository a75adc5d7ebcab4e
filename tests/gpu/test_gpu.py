"""Runs on an NVIDIA GPU; skipped without a driver. TRAINER_BINARY is the program, TRAINER_FAULTS the library that makes ranks slow."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FEW_EXACT_STEPS = ["training.epochs=1", "logging.every_steps=1", "runtime.dtype=float64", "dataloader.global_batch_size=500",
                   "optimizer.lr=0.001"]


@unittest.skipUnless(pathlib.Path("/proc/driver/nvidia/version").exists(), "no NVIDIA driver")
class GpuTest(unittest.TestCase):
    def events(self, *overrides, launcher=(), kind="train", fault=""):
        env = {**os.environ, "LD_PRELOAD": os.environ["TRAINER_FAULTS"], "TRAINER_TEST_FAULT": fault} if fault else None
        with tempfile.TemporaryDirectory(prefix="trainer-gpu-") as folder:
            run_dir = pathlib.Path(folder) / "run"
            command = [os.environ["TRAINER_BINARY"], *launcher, "--config", ROOT / "configs/quickstart.yaml", "--run-dir", run_dir,
                       "training.epochs=2", *overrides]
            run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
            return [line for line in lines if line["event"] == kind]

    def losses(self, *overrides, launcher=()):
        return [event["loss"] for event in self.events(*overrides, launcher=launcher)]

    def assert_near(self, losses, others):
        # The same float64 arithmetic in another order, so the losses differ by rounding errors, slightly amplified over four steps.
        self.assertEqual(len(losses), len(others))
        for a, b in zip(losses, others):
            self.assertAlmostEqual(a, b, delta=1e-8)

    def test_auto_uses_the_gpu_and_learns(self):
        losses = self.losses()
        self.assertLess(losses[-1], losses[0])

    def test_the_first_losses_equal_the_cpus(self):
        self.assert_near(self.losses(*FEW_EXACT_STEPS), self.losses(*FEW_EXACT_STEPS, "runtime.device=cpu"))

    def test_one_process_over_nccl(self):
        self.assert_near(self.losses(*FEW_EXACT_STEPS, "distributed.backend=nccl"), self.losses(*FEW_EXACT_STEPS))

    def test_two_ranks_on_one_gpu_over_gloo(self):
        two = self.losses(*FEW_EXACT_STEPS, "distributed.backend=gloo", launcher=("launch", "--nproc-per-node", "2"))
        self.assert_near(two, self.losses(*FEW_EXACT_STEPS))

    def test_a_non_finite_step_is_saved_and_replayed(self):
        for policy in ("stop", "skip"):
            with self.subTest(policy), tempfile.TemporaryDirectory(prefix="trainer-gpu-") as folder:
                command = [os.environ["TRAINER_BINARY"], "--config", ROOT / "configs/quickstart.yaml", "--run-dir", f"{folder}/run",
                           "optimizer.lr=1.0e30", "logging.every_steps=5", f"training.on_non_finite={policy}"]
                run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
                self.assertEqual(run.returncode, 1, run.stderr)
                kept = sorted(pathlib.Path(folder, "run/non_finite").iterdir())
                self.assertEqual(len(kept), 1 if policy == "stop" else 3, run.stderr)
                # On a GPU, `stop` checks only at the end of a logging interval; the steps since the first non-finite one changed nothing.
                replayed = subprocess.run([os.environ["TRAINER_BINARY"], "replay", kept[0]], cwd=ROOT, capture_output=True, text=True)
                self.assertEqual(replayed.returncode, 0, replayed.stderr)
                self.assertIn(", as in the run", replayed.stdout)

    def test_a_slow_rank_is_named(self):
        two_ranks = ("launch", "--nproc-per-node", "2")
        for fault, rank, cause in (("1 training 0 slow", 1, "compute"), ("0 loading 0 slow", 0, "data")):
            warnings = self.events("training.epochs=1", "logging.every_steps=8", "distributed.backend=gloo", launcher=two_ranks, kind="warning",
                                   fault=fault)
            self.assertGreater(len(warnings), 0)
            for warning in warnings:
                self.assertRegex(warning["message"], rf"^rank {rank} \(process \d+ on \S+, cuda:0\) is slow: .* its {cause} \(")

    def test_float16_with_the_grad_scaler(self):
        events = self.events("amp={enabled: true, dtype: float16, init_scale: 1.0e30, growth_interval: 20}")
        self.assertGreater(events[0]["skipped_steps"], 0)
        self.assertLess(events[-1]["grad_scale"], 1e30)
        self.assertLess(events[-1]["loss"], events[0]["loss"])


if __name__ == "__main__":
    unittest.main()
