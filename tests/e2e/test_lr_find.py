"""trainer lr-find, on one rank and on two."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import terminal  # noqa: E402
from program import BINARY, ROOT, FolderCase  # noqa: E402

# Autocast is off, because in bfloat16 two halves of a batch round differently than the whole batch.
RUN = ["--config", ROOT / "configs" / "demo_linear.yaml", "dataloader.batch_size=null", "dataloader.global_batch_size=32", "amp.enabled=false"]


class LrFindTest(FolderCase):
    def lr_find(self, *args, launcher=()):
        command = [BINARY, *launcher, "lr-find", *map(str, (*RUN, *args))]
        run = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(list(self.folder.iterdir()), [])
        return run

    def test_is_repeatable_and_the_same_on_two_ranks(self):
        runs = [self.lr_find("--json", launcher=launcher) for launcher in ((), (), ("launch", "--nproc-per-node", "2", "--"))]
        for run in runs:
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(run.stderr.splitlines().count("trained 10 of 100 steps"), 1, run.stderr)
        self.assertEqual(runs[0].stdout, runs[1].stdout)
        one, two = json.loads(runs[0].stdout), json.loads(runs[2].stdout)
        self.assertEqual((len(one["points"]), len(two["points"])), (100, 100))
        for key in ("suggestion", "least", "rise"):
            self.assertEqual(one[key], two[key])
        for a, b in zip(one["points"], two["points"], strict=True):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-5 * a["loss"])
        self.assertAlmostEqual(one["points"][0]["lr"], 1e-7)
        self.assertAlmostEqual(one["points"][99]["lr"], 10)

    def test_ends_when_the_loss_diverges(self):
        run = self.lr_find("--max-lr", "1e6", "optimizer={name: sgd, lr: 0.01}")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"(?m)^\d\d steps from 1e-07 to \S+; then the loss diverged$")
        self.assertRegex(run.stdout, r"(?m)^the loss is lowest at a learning rate of \S+; above \S+ the loss exceeds the level from which it began to fall$")
        self.assertRegex(run.stdout, r"(?m)^To train: trainer --config \S+demo_linear.yaml .* 'optimizer={name: sgd, lr: 0.01}' optimizer.lr=\S+$")

    def test_shows_a_bar_and_when_interrupted_the_curve_so_far(self):
        command = [BINARY, "lr-find", *RUN, "--steps", "100000"]
        code, text = terminal.run(command, interrupt_at=b" of 100000", cwd=self.folder)
        self.assertEqual(code, 75, text)
        self.assertIn(terminal.ERASE, text)
        without_colours = re.sub(r"\x1b\[\d*m", "", text)
        self.assertRegex(without_colours, r"\d+% \[=* *\]  trained \d+ of 100000 steps")
        lines = terminal.show(text, 80).lines()
        self.assertGreaterEqual(len([line for line in lines if "|" in line]), 10, text)
        self.assertTrue(any(re.fullmatch(r"Stopped after \d+ of 100000 steps, so nothing is suggested\.", line) for line in lines), text)

    def test_mistakes(self):
        run = self.lr_find("optimizer.lr=0")
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertIn("optimizer.lr: the test scales the learning rate, which must not be 0; set it to 1", run.stderr)


if __name__ == "__main__":
    unittest.main()
