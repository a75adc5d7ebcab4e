"""torchrun starts the program as it starts a script. TRAINER_BINARY names it."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from ports import free_port  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


class TorchrunTest(unittest.TestCase):
    def test_static_and_c10d_rendezvous(self):
        port = free_port()
        for name, rendezvous in (("static", [f"--master-port={port}"]),
                                 ("c10d", ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=test"])):
            with self.subTest(name), tempfile.TemporaryDirectory(prefix="trainer-torchrun-") as folder:
                run_dir = pathlib.Path(folder) / "run"
                command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node=2", *rendezvous,
                           os.environ["TRAINER_BINARY"], "--config", "configs/demo_linear.yaml", "training.epochs=1", "--run-dir", run_dir]
                run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
                self.assertEqual(run.returncode, 0, run.stderr)
                start = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[0])
                self.assertEqual(start["world_size"], 2)
                self.assertIn("rank 0 of 2 (local rank 0 of 2)", run.stderr)


if __name__ == "__main__":
    unittest.main()
