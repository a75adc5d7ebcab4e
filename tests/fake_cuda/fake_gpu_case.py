"""Runs of the program on GPUs that tests/fake_cuda imitates, which the tests' environment preloads."""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from gpu_case import GpuCase, launcher, synthetic  # noqa: E402

# Two steps in each epoch, with images that need no decoding.
SMALL = ["model={name: resnet20}", *synthetic(16), "dataset.num_validation=8", "dataloader={global_batch_size: 8, num_workers: 1}",
         "validation={batch_size: 8, every_epochs: 1}", "training.epochs=2", "logging.every_steps=1"]


class FakeGpuCase(GpuCase):
    def begin(self, *args, variables=None, **options):
        return super().begin(*args, variables={"FAKE_CUDA_FOLDER": str(self.folder), **(variables or {})}, **options)

    def call(self, *args, num_gpus=1, **options):
        """Runs the program to its end with this many GPUs, and checks that it has done nothing that would fail at random on a real GPU."""
        run = super().call(*args, visible=num_gpus, **options)
        self.assertNotIn("FAKE CUDA", run.stderr)
        # A process that was killed by a signal has touched device memory on the host.
        self.assertGreaterEqual(run.returncode, 0, run.stderr)
        return run

    def succeed(self, *args, **options):
        run = self.call(*args, **options)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return run

    def count(self, *overrides, num_ranks=1):
        """Trains, and returns the calls of each rank, as FAKE_CUDA_STATS lists them."""
        stats = tempfile.TemporaryDirectory(prefix="trainer-gpu-")
        self.addCleanup(stats.cleanup)
        self.train(*overrides, launcher=launcher(num_ranks) if num_ranks > 1 else (), num_gpus=num_ranks,
                   variables={"FAKE_CUDA_STATS": stats.name}, devices=[f"cuda:{number}" for number in range(num_ranks)])
        return [json.loads((pathlib.Path(stats.name) / f"rank_{rank}.json").read_text()) for rank in range(num_ranks)]
