"""Python reads the saved record of a step that was not finite. TRAINER_BINARY is the program."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]


class KeptStepTest(unittest.TestCase):
    def test_the_model_has_the_values_of_the_step(self):
        with tempfile.TemporaryDirectory(prefix="trainer-parity-") as folder:
            command = [os.environ["TRAINER_BINARY"], "--config", ROOT / "configs/demo_linear.yaml", "--run-dir", f"{folder}/run",
                       "optimizer.lr=1.0e30"]
            run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            self.assertEqual(run.returncode, 1, run.stderr)
            (kept,) = pathlib.Path(folder, "run/non_finite").iterdir()
            record = json.loads((kept / "step.json").read_text())
            state = torch.load(kept / "model.pt", weights_only=True)
        self.assertEqual({name: tuple(tensor.shape) for name, tensor in state.items()}, {"fc.weight": (10, 10), "fc.bias": (10,)})
        self.assertEqual(record["first_non_finite"], "the loss")
        # After one step with this learning rate, the values are finite, but their squares are not.
        self.assertTrue(all(tensor.isfinite().all() for tensor in state.values()))
        self.assertFalse(state["fc.weight"].square().isfinite().all())


if __name__ == "__main__":
    unittest.main()
