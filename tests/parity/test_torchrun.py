"""torchrun starts the program as it starts a script. TRAINER_BINARY names it."""

import contextlib
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_port():
    """Below the range from which the system gives ports to connections, which other tests make meanwhile."""
    while True:
        port = random.randrange(15000, 32000)
        with contextlib.closing(socket.socket()) as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


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
