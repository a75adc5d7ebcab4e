"""The real program on an NVIDIA GPU; skipped where there is no driver. TRAINER_BINARY names it."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@unittest.skipUnless(pathlib.Path("/proc/driver/nvidia/version").exists(), "no NVIDIA driver")
class GpuTest(unittest.TestCase):
    def losses(self, *overrides):
        with tempfile.TemporaryDirectory(prefix="trainer-gpu-") as folder:
            run_dir = pathlib.Path(folder) / "run"
            command = [os.environ["TRAINER_BINARY"], "--config", ROOT / "configs/quickstart.yaml", "--run-dir", run_dir, "training.epochs=2", *overrides]
            run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            events = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
            return [event["loss"] for event in events if event["event"] == "train"]

    def test_auto_takes_the_gpu_and_learns(self):
        losses = self.losses()
        self.assertLess(losses[-1], losses[0])

    def test_the_first_losses_are_the_cpus(self):
        first = ["training.epochs=1", "logging.every_steps=1", "runtime.dtype=float64", "dataloader.global_batch_size=500", "optimizer.lr=0.001"]
        gpu, cpu = (self.losses(*first, f"runtime.device={device}") for device in ("cuda", "cpu"))
        # The same float64 arithmetic in another order: rounding errors, a little amplified over four steps.
        for a, b in zip(gpu, cpu):
            self.assertAlmostEqual(a, b, delta=1e-8)


if __name__ == "__main__":
    unittest.main()
