"""The output of `trainer train` on a terminal, in a pipe, and with --quiet and --verbose."""

import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import terminal  # noqa: E402
from program import BINARY, ROOT, FolderCase, events  # noqa: E402

EXPERIMENT = """
experiment: classes
model: {name: demo_linear}
dataset: {name: synthetic, shape: [10], num_classes: 10, num_train: 1600, num_validation: 256}
dataloader: {batch_size: 32}
optimizer: {name: sgd, lr: 0.01}
training: {epochs: 4}
validation: {every_epochs: 2}
logging: {every_steps: 10}
# Without a number of threads, the output has a line about the runs of other tests on this host.
runtime: {threads: 1}
# The line about the device is not fitted to the terminal, and is longer on a processor with bfloat16.
amp: {enabled: false}
"""
HEADING = re.compile(r"^\* best +.*-\n +epoch(?: +\S+)+$", re.MULTILINE)
ROW = re.compile(r"^[* ]   ([1-4])/4  .*$", re.MULTILINE)


class ConsoleTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.config = self.folder / "classes.yaml"
        self.config.write_text(EXPERIMENT)

    def command(self, name, *args):
        return [BINARY, "--config", self.config, "--run-dir", self.folder / name, *args]

    def on_terminal(self, columns, *args, name=None, **options):
        code, text = terminal.run(self.command(name or str(columns), *args), columns, cwd=ROOT, **options)
        self.assertEqual(code, 0, text)
        return text, terminal.show(text, columns)

    def in_pipe(self, name, *args, launcher=()):
        command = self.command(name, *args)
        command[1:1] = launcher
        return subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=120)

    def test_the_epochs_are_a_table_above_the_bar(self):
        for columns, titles in (
            (40, ["epoch", "loss", "loss", "top1"]),
            (80, ["epoch", "loss", "top1", "loss", "top1", "top5", "lr", "time", "img/s"]),
            (120, ["epoch", "loss", "top1", "loss", "top1", "top5", "lr", "time", "img/s"]),
        ):
            with self.subTest(columns=columns):
                text, screen = self.on_terminal(columns)
                shown = "\n".join(screen.lines())
                headings = HEADING.findall(shown)
                self.assertEqual(len(headings), 1, shown)
                heading = HEADING.search(shown)[0].splitlines()[1]
                self.assertEqual(heading.split(), titles)
                rows = [match[0] for match in ROW.finditer(shown)]
                self.assertEqual([ROW.match(row)[1] for row in rows], list("1234"), shown)
                for row in rows:
                    # Each cell ends in the column in which its title ends.
                    self.assertEqual([match.end() for match in re.finditer(r"\S+", row.replace("*", " ", 1))],
                                     [match.end() for match in re.finditer(r"\S+", heading)], shown)
                # Epochs without a validation have no validation values and are not marked as the best.
                self.assertEqual([" - " in row or row.endswith(" -") for row in rows], [True, False, True, False], shown)
                self.assertEqual([row[0] for row in (rows[0], rows[2])], [" ", " "], shown)
                self.assertNotRegex(shown, r"(?m)^(epoch|validation  |checkpoint) ")
                self.assertNotRegex(shown, r"(?m)^ *\d+% ", "a bar is left")
                # Users copy the lines from "files in" on, so the program does not wrap them. The lines before must fit the terminal.
                for line in shown[shown.index("* best"):shown.index("files in ")].splitlines():
                    self.assertLess(len(line), columns)
                self.assertTrue(text.isascii())
                log = (self.folder / str(columns) / "train.log").read_text()
                self.assertEqual(len(re.findall(r"epoch [1-4]/4  step \d+/50  loss \S+  top1 \S+%  lr \S+  \d+ img/s  data \d+%  mem \S+ [KMG]iB  ETA", log)), 21)
                self.assertEqual(len(re.findall(r"validation  epoch [24]/4  loss \S+  top1 \S+%  top5 \S+%  256 images  \S+s\n", log)), 2)
                self.assertIn("checkpoint  ", log)

    def test_a_table_without_validation(self):
        shown = "\n".join(self.on_terminal(80, "validation.every_epochs=null")[1].lines())
        self.assertRegex(shown, r"\n +epoch +loss +top1 +lr +time +img/s\n")
        self.assertNotIn("* best", shown)
        self.assertNotIn(" - ", shown)

    def test_the_bar_fills_its_line_and_no_more(self):
        for columns in (40, 80, 120, 200):
            with self.subTest(columns=columns):
                text, _ = self.on_terminal(columns)
                bars = [part for part in re.split(r"\r\x1b\[K", text) if re.match(r"(\x1b\[2m)? *\d+% ", part)]
                self.assertGreater(len(bars), 0)
                for bar in bars:
                    bar = re.sub(r"\x1b\[\d*m", "", bar)
                    self.assertRegex(bar, r"% \[[= ]{10,}\]")
                    self.assertLess(len(bar), columns)

    def test_colours_only_where_they_are_wanted(self):
        text, _ = self.on_terminal(80, name="colour")
        self.assertIn("\x1b[2m", text)
        os.environ["NO_COLOR"] = "1"
        self.addCleanup(os.environ.pop, "NO_COLOR")
        text, screen = self.on_terminal(80, name="plain")
        self.assertNotRegex(text, r"\x1b\[\d*m")
        self.assertEqual(len(HEADING.findall("\n".join(screen.lines()))), 1)

    def test_a_terminal_that_cannot_erase_gets_lines(self):
        for term in ("dumb", ""):
            with self.subTest(term=term):
                text, screen = self.on_terminal(80, name=f"term-{term}", term=term)
                self.assertNotIn("\x1b", text)
                self.assertNotIn("\r", text.replace("\r\n", "\n"))
                # The program does not wrap the lines from "files in" on.
                self.assertEqual(terminal.show(text[:text.index("files in ")], 80).wrapped, [], text)
                shown = "\n".join(screen.lines())
                self.assertIsNone(HEADING.search(shown), shown)
                self.assertEqual(len(re.findall(r"(?m)^epoch [1-4]/4  step \d+/50  loss", shown)), 21, shown)
                self.assertEqual(len(re.findall(r"(?m)^validation  epoch [24]/4  ", shown)), 2, shown)

    def test_a_terminal_that_changes_its_width(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        resize = lambda columns: fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        resize(120)
        command = [str(word) for word in self.command("resized", "training.epochs=1000000")]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"})
        os.close(theirs)
        data = b""

        def read_until(pattern):
            nonlocal data
            while not re.search(pattern, data):
                data += os.read(ours, 65536)
            seen, data = data, b""
            return seen.decode()

        wide = read_until(rb"[* ] +2/1000000 ")
        self.assertEqual(wide.count("* best"), 1)
        resize(50)
        narrow = read_until(rb"\* best[^\n]*\n[^\n]*\n[^\n]*\n")
        for line in narrow[narrow.index("* best"):].splitlines()[:3]:
            self.assertLess(len(line.split("\x1b[K")[-1]), 50, narrow)
        process.send_signal(signal.SIGTERM)
        try:
            while os.read(ours, 65536):
                pass
        except OSError:  # the program has ended
            pass
        self.assertEqual(process.wait(), 75)

    def test_a_pipe_gets_lines_and_the_next_commands(self):
        run = self.in_pipe("a run")
        self.assertEqual((run.returncode, run.stdout), (0, ""), run.stderr)
        self.assertNotIn("\x1b", run.stderr)
        # Five lines in each epoch, and one after the first step, which is not an event of metrics.jsonl.
        steps = [int(step) for step in re.findall(r"(?m)^epoch [1-4]/4  step (\d+)/50  loss", run.stderr)]
        self.assertEqual(steps, [1] + 4 * [10, 20, 30, 40, 50])
        self.assertEqual([event["step"] for event in events(self.folder / "a run", "train")], list(range(10, 201, 10)))
        path = self.folder / "a run"
        end = run.stderr.splitlines()[-6:]
        self.assertRegex(end[0], r"^done  200 steps  \S+s  \d+ img/s$")
        self.assertRegex(end[1], r"^validation/top1  final \S+%  best \S+% in epoch [24], step \d+$")
        self.assertEqual(end[2:], [f"files in {path}: checkpoints/best.pt, summary.json, train.log",
                                   f"to evaluate: trainer eval --checkpoint '{path}/checkpoints/best.pt'",
                                   f"to export:   trainer export --checkpoint '{path}/checkpoints/best.pt' --output model.onnx",
                                   f"for curves:  trainer report '{path}'"])
        log = (path / "train.log").read_text()
        for line in end:
            self.assertIn(line, log)
        # The shell can run the printed commands.
        environment = {**os.environ, "PATH": f"{pathlib.Path(BINARY).parent}:{os.environ['PATH']}"}
        for line in end[3:]:
            ran = subprocess.run(line.split(":", 1)[1], shell=True, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_a_stopped_run_names_the_command_that_continues_it(self):
        for launcher in ((), ("launch", "--nproc-per-node", "2")):
            with self.subTest(launcher=launcher):
                name = f"stopped {len(launcher)}"
                run = self.in_pipe(name, "training.max_minutes=0.0001", launcher=launcher)
                self.assertEqual(run.returncode, 75, run.stderr)
                continued = re.search(r"(?m)^to continue: (trainer .*)$", run.stderr)
                self.assertIsNotNone(continued, run.stderr)
                environment = {**os.environ, "PATH": f"{pathlib.Path(BINARY).parent}:{os.environ['PATH']}"}
                again = subprocess.run(continued[1] + " training.max_minutes=null", shell=True, cwd=ROOT, env=environment, capture_output=True, text=True,
                                       timeout=120)
                self.assertEqual(again.returncode, 0, again.stderr)
                self.assertIn(f"world_size {2 if launcher else 1}", again.stderr)
                self.assertIn(f"files in {self.folder / name}: ", again.stderr)

    def test_quiet(self):
        for launcher in ((), ("launch", "--nproc-per-node", "2")):
            with self.subTest(launcher=launcher):
                name = f"quiet{len(launcher)}"
                run = self.in_pipe(name, "-q", "lr_scheduler={name: multistep, milestones: [9]}", launcher=launcher)
                self.assertEqual(run.returncode, 0, run.stderr)
                lines = run.stderr.splitlines()
                self.assertRegex(lines[0], r"^warning: .*milestones: epoch 9 is not reached")
                self.assertRegex(lines[1], r"^done  \d+ steps ")
                self.assertEqual(len(lines), 3, run.stderr)
                self.assertIn("for curves:  trainer report", (self.folder / name / "train.log").read_text())
                self.assertEqual((self.folder / name / "train.log").read_text().count("validation  epoch"), 2)
        text, screen = self.on_terminal(80, "--quiet", name="quiet_terminal")
        self.assertTrue(screen.lines()[0].startswith("done  200 steps"), text)

    def test_verbose(self):
        run = self.in_pipe("verbose", "-v")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("debug: the experiment with all defaults:\nexperiment: classes\n", run.stderr)
        self.assertRegex(run.stderr, r"debug: ready to train \S+s after the start\n")
        self.assertNotIn("the experiment with all defaults", (self.folder / "verbose" / "train.log").read_text())
        _, screen = self.on_terminal(80, "--verbose", name="verbose_terminal")
        self.assertEqual(len(re.findall("(?m)^checkpoint ", "\n".join(screen.lines()))), 4)
        several = self.in_pipe("ranks", "-v", launcher=("launch", "--nproc-per-node", "2"))
        self.assertEqual(several.returncode, 0, several.stderr)
        self.assertRegex(several.stderr, r"(?m)^rank 1: epoch 1/4  step \d+/\d+  loss ")
        self.assertEqual(several.stderr.count("the experiment with all defaults"), 1)
        self.assertIn("debug: rank 0 of 2 (local rank 0 of 2), from RANK and WORLD_SIZE\n", several.stderr)
        usual = self.in_pipe("usual", "training.epochs=1", launcher=("launch", "--nproc-per-node", "2"))
        self.assertNotIn("local rank", usual.stderr)
        self.assertIn("rank 0 of 2 (local rank 0 of 2), from RANK and WORLD_SIZE", (self.folder / "usual" / "train.log").read_text())

    def test_contradictions(self):
        for args, message in (
            (["-q", "-v"], "error: --quiet and --verbose contradict each other: omit one of them\n"),
            (["-q", "--progress", "plain"], "error: --quiet shows no progress, but --progress is plain: omit one of them\n"),
            (["-q", "--progress", "bar"], "error: --quiet shows no progress, but --progress is bar: omit one of them\n"),
        ):
            with self.subTest(args=args):
                run = self.in_pipe("none", *args)
                self.assertEqual((run.returncode, run.stderr), (2, message))


if __name__ == "__main__":
    unittest.main()
