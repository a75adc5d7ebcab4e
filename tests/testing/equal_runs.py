"""A short run whose result does not depend on the launcher, and helpers for tests of launchers. TRAINER_BINARY is the program."""

import hashlib
import json
import os
import struct
import subprocess
import unittest
import zipfile

from launches import BINARY, FAULTS, ROOT

# Ten steps in each of three epochs, five validation batches.
RUN = ["--config", ROOT / "configs" / "quickstart.yaml", "model={name: demo_conv, num_classes: 10}",
       "dataset={name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 80, num_validation: 40}", "dataset.train_transforms=[]",
       "dataset.validation_transforms=[]", "dataloader={batch_size: null, global_batch_size: 8}", "validation={batch_size: 8, every_epochs: 1}", "training.epochs=3",
       "checkpoint={every_steps: 7, keep_last: 2}", "logging.every_steps=5", "runtime.device=cpu", "distributed.hang_seconds=60"]
# One thread, because results depend on the number of threads, which launchers set.
SHORT_RUN = [*map(str, RUN), "runtime.threads=1"]
# Excludes the variables of launchers, which may have started the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "PMI_", "PMIX_", "MASTER_", "TORCHELASTIC_"))
               and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}


def results_of(run_dir):
    """The results that have to be the same in equal runs."""
    keys = ("event", "epoch", "step", "loss", "top1", "top5", "lr", "num_samples")
    events = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    measured = [{key: event[key] for key in keys if key in event} for event in events if event["event"] in ("train", "validation")]
    rows = [row.split(",")[:8] for row in (run_dir / "metrics.csv").read_text().splitlines()]
    return measured, rows, sorted(tensorboard_steps(run_dir))


def tensorboard_steps(run_dir):
    """The step of each event with values in all event files (tensorflow/core/util/event.proto)."""
    for file in sorted((run_dir / "tensorboard").iterdir()):
        content = file.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event, content = content[12:12 + length], content[16 + length:]
            step, shift, rest = 0, 0, event[9:]  # after the time, a double
            if not rest.startswith(b"\x10"):
                continue
            for byte in rest[1:]:
                step |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            yield step


def tensors(run_dir):
    """Hashes of the tensors in the newest checkpoint of a run."""
    with zipfile.ZipFile(run_dir / "checkpoints" / "last.pt") as archive:
        return {name.split("/", 1)[1]: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist() if "/data/" in name}


def needs(missing):
    """Skips a test class whose programs are missing. In CI this is a failure, because scripts/setup.sh --dev installs them there."""
    if not missing:
        return
    text = f"not installed: {', '.join(missing)}; scripts/setup.sh --dev installs them"
    if os.environ.get("CI") == "true":
        raise AssertionError(text)
    raise unittest.SkipTest(text)


def with_fault(fault):
    """The program's command line with a fault that is injected only into this program."""
    return ["env", f"LD_PRELOAD={FAULTS}", f"TRAINER_TEST_FAULT={fault}", BINARY] if fault else [BINARY]


def world_size(run_dir):
    return json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[0])["world_size"]


class EqualRunsCase(unittest.TestCase):
    def launch_straight(self, folder, num_ranks):
        """An uninterrupted run by the bundled launcher; returns its run directory."""
        run_dir = folder / f"straight_{num_ranks}"
        if not run_dir.exists():
            command = [BINARY, "launch", "--nproc-per-node", str(num_ranks), *SHORT_RUN, "--run-dir", str(run_dir)]
            run = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
            self.assertEqual(run.returncode, 0, run.stderr)
        return run_dir

    def assert_equal_runs(self, run_dir, straight):
        self.assertEqual(world_size(run_dir), world_size(straight))
        self.assertEqual(results_of(run_dir), results_of(straight))
        self.assertEqual(tensors(run_dir), tensors(straight))
