"""This version reads the files that earlier versions wrote (tests/kept), and continues their runs. TRAINER_BINARY is the program.

A folder has the version's name, and holds experiment.yaml, whose first line is the command, the run, and expected.json, which
`test_kept_files.py --write FOLDER` writes with the version that trained the run."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "kept"
# Another processor rounds differently. The differences grow with the steps of the continued run.
READ, CONTINUED = 1e-5, 5e-3


def trainer(*arguments):
    run = subprocess.run([os.environ["TRAINER_BINARY"], *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    if run.returncode != 0:
        raise AssertionError(run.stdout + run.stderr)
    return run.stdout


def losses_of(run):
    events = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [event["loss"] for event in events if event["event"] == "validation"]


def results_of(folder):
    """What this version computes from the files in `folder`."""
    with tempfile.TemporaryDirectory(prefix="trainer-kept-") as temporary:
        run = pathlib.Path(temporary, "run")
        shutil.copytree(folder / "run", run)
        evaluated = json.loads(trainer("eval", "--json", "--checkpoint", run))
        image = json.loads(trainer("predict", "--json", "--checkpoint", run, ROOT / "tests/golden/images/mode_rgb.png").splitlines()[0])
        trainer("--config", folder / "experiment.yaml", "--run-dir", run, "training.epochs=4")
        return {"evaluated_loss": evaluated["metrics"]["loss"], "probabilities": {row["name"]: row["probability"] for row in image["classes"]},
                "losses": losses_of(run)}


class KeptFilesTest(unittest.TestCase):
    def test_read_and_continued(self):
        folders = sorted(KEPT.iterdir())
        self.assertTrue(folders)
        for folder in folders:
            with self.subTest(folder.name):
                self.assertIn("no problem found", trainer("validate", "--config", folder / "experiment.yaml"))
                expected, found = json.loads((folder / "expected.json").read_text()), results_of(folder)
                self.assertAlmostEqual(found["evaluated_loss"], expected["evaluated_loss"], delta=READ)
                self.assertEqual(list(found["probabilities"]), list(expected["probabilities"]))
                for name, probability in expected["probabilities"].items():
                    self.assertAlmostEqual(found["probabilities"][name], probability, delta=READ)
                self.assertEqual(len(found["losses"]), len(expected["losses"]))
                for here, there in zip(found["losses"], expected["losses"], strict=True):
                    self.assertAlmostEqual(here, there, delta=CONTINUED)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        kept = pathlib.Path(sys.argv[2])
        (kept / "expected.json").write_text(json.dumps(results_of(kept), indent=1) + "\n")
    else:
        unittest.main()
