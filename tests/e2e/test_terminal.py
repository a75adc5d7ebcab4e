"""Every command on a terminal, on a terminal without colours, and into a pipe. TRAINER_BINARY is the program."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import terminal  # noqa: E402

BINARY = os.environ["TRAINER_BINARY"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
LINEAR = ROOT / "configs" / "demo_linear.yaml"
COLUMNS = 80
COMMANDS = [line.split()[0] for line in subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=True).stdout.splitlines()
            if line.startswith("  ") and line.strip() and line[2] != " " and not line.strip().startswith("-")]


class TerminalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-terminal-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name, lr in (("a", 0.01), ("b", 0.001)):
            subprocess.run([BINARY, "--config", LINEAR, "--run-dir", f"runs/{name}", "training.epochs=2", f"optimizer.lr={lr}"], cwd=cls.folder,
                           capture_output=True, check=True)
        cls.best = [f"runs/{name}/checkpoints/best.pt" for name in "ab"]

    def piped(self, *args):
        run = subprocess.run([BINARY, *map(str, args)], cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertNotIn("\x1b", run.stdout + run.stderr)
        return run

    def on_terminal(self, *args, columns=COLUMNS, **options):
        code, text = terminal.run([BINARY, *args], columns, cwd=self.folder, **options)
        return code, text, terminal.show(text, columns)

    def check(self, args, code=0, fits=True):
        with self.subTest(args=args):
            run = self.piped(*args)
            self.assertEqual(run.returncode, code, run.stderr)
            shown_code, text, screen = self.on_terminal(*args)
            self.assertEqual(shown_code, code, text)
            if fits:
                self.assertEqual(screen.wrapped, [], text)
            dumb_code, dumb, _ = self.on_terminal(*args, term="dumb")
            self.assertEqual((dumb_code, "\x1b" in dumb), (code, False), dumb)
            return screen

    def test_help(self):
        self.assertGreater(len(COMMANDS), 15)
        for command in COMMANDS:
            self.check([command, "--help"], fits=False)

    def test_tables_fit(self):
        for args in (["runs"], ["validate", "--config", LINEAR],
                     ["checkpoint", "verify", *self.best],
                     ["config", "reference", "training.epochs"], ["report", "runs/a", "--output", "report.html"]):
            self.check(args)

    def test_texts_whose_lines_may_be_long(self):
        for args in (["config", "show", "--config", LINEAR], ["config", "show", "--origin", "--config", LINEAR], ["config", "reference", "training"],
                     ["checkpoint", "info", self.best[0]], ["checkpoint", "diff", *self.best], ["export", "--checkpoint", self.best[0], "--format", "onnx", "--output", "a.onnx"],
                     ["verify-resume", "--config", LINEAR, "--steps", "4"], ["data", "check", "--config", LINEAR], ["--version"],
                     ["lr-find", "--config", LINEAR, "--steps", "20"], ["list", "models"], ["compare", "runs/a", "runs/b"],
                     ["eval", "--checkpoint", self.best[0]]):
            self.check(args, code=1 if args[:2] == ["checkpoint", "diff"] else 0, fits=False)

    def test_refusals(self):
        for args in (["trian"], ["runs", "none"], ["eval", "--checkpoint", "none.pt"], ["validate", "--config", LINEAR, "optimizer.lrr=1"]):
            code = self.piped(*args).returncode
            self.assertNotEqual(code, 0)
            self.check(args, code=code, fits=False)


if __name__ == "__main__":
    unittest.main()
