"""logging.command: programs that get the events of a run on their standard input."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import BINARY, LINEAR, ROOT, FolderCase  # noqa: E402
from troubleshooting import plants  # noqa: E402

# Writes its standard input to a file; prints a line when it starts and one when it has read everything. Text and
# newline go out in one write, also with PYTHONUNBUFFERED: another writer of the same pipe must not get between them.
RECORD = """
import sys
sys.stdout.write("recorder started\\n")
sys.stdout.flush()
with open(sys.argv[1], "a") as file:
    for line in sys.stdin:
        file.write(line)
        file.flush()
sys.stderr.write("recorder done\\n")
"""


class EventCommandTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.lines = self.folder / "lines"
        self.program = self.folder / "program.py"

    def start(self, *args, program=RECORD, launcher=()):
        self.program.write_text(program)
        command = json.dumps([sys.executable, str(self.program), str(self.lines)])
        settings = ["--config", LINEAR, "runtime.threads=1", f"logging.command={command}", *args, "--run-dir", self.run_dir]
        return subprocess.Popen([BINARY, *launcher, *map(str, settings)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def train(self, *args, **options):
        process = self.start(*args, **options)
        process.out, process.err = process.communicate(timeout=200)
        return process

    def metrics(self):
        return (self.run_dir / "metrics.jsonl").read_text()

    def test_the_program_gets_the_lines_of_the_metrics_file(self):
        for launcher in ((), ("launch", "--nproc-per-node", "2")):
            with self.subTest(launcher=launcher):
                self.run_dir = self.folder / f"run{len(launcher)}"
                self.lines = self.folder / f"lines{len(launcher)}"
                run = self.train(launcher=launcher)
                self.assertEqual(run.returncode, 0, run.err)
                self.assertEqual(run.out, "")
                self.assertEqual(self.lines.read_text(), self.metrics())
                kinds = [json.loads(line)["event"] for line in self.metrics().splitlines()]
                self.assertEqual((kinds[0], kinds[-1], kinds.count("validation")), ("start", "end", 5))
                for line in ("recorder started\n", "recorder done\n"):
                    self.assertEqual(run.err.count(line), 1, run.err)
                self.assertNotIn("warning", run.err)

    def test_a_resumed_run_sends_what_follows_its_checkpoint(self):
        self.assertEqual(self.train("training.epochs=2").returncode, 0)
        self.assertEqual(self.lines.read_text(), self.metrics())
        self.lines.unlink()
        run = self.train("training.epochs=4")
        self.assertEqual(run.returncode, 0, run.err)
        sent = self.lines.read_text()
        self.assertTrue(self.metrics().endswith(sent))
        kinds = [json.loads(line)["event"] for line in sent.splitlines()]
        # The first event is that of the checkpoint, which is written again.
        self.assertEqual((kinds[:2], kinds.count("validation")), (["checkpoint", "resume"], 2))

    def test_ctrl_c_does_not_keep_the_last_events_from_the_program(self):
        process = self.start("training.epochs=1000000")
        for line in process.stderr:
            if line.startswith("epoch 1/1000000  step 20"):
                break
        child = int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        self.assertEqual(os.getpgid(child), child)
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        process.stderr.close()
        process.stdout.close()
        self.assertEqual(process.wait(), 75, err)
        self.assertEqual(self.lines.read_text(), self.metrics())
        self.assertEqual(json.loads(self.metrics().splitlines()[-1])["reason"], "stopped")

    def test_a_program_that_ends_changes_nothing_but_a_warning(self):
        straight = self.folder / "straight"
        subprocess.run([BINARY, "--config", LINEAR, "runtime.threads=1", "--run-dir", straight], cwd=ROOT, check=True, capture_output=True)
        run = self.train(program="raise SystemExit(3)")
        self.assertEqual(run.returncode, 0, run.err)
        # The run may end before Python has started.
        self.assertRegex(run.err, rf"warning: command line: logging\.command: {sys.executable} ended with exit code 3( and receives no more events; training "
                                  r"continues| before it had read all events|\n)")
        self.assertEqual(run.err.count("warning:"), 1, run.err)
        keys = ("event", "step", "loss", "lr")
        results = [[[json.loads(line).get(key) for key in keys] for line in (folder / "metrics.jsonl").read_text().splitlines() if "checkpoint" not in line]
                   for folder in (self.run_dir, straight)]
        self.assertEqual(*results)

    @plants("The program of `logging.command` ends before it has read all events")
    def test_a_program_that_never_reads_does_not_stop_training(self, row):
        # More events than a pipe holds. The program ends when the run has written its last file.
        program = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)\n"
        process = self.start("training.epochs=40", "logging.every_steps=1", "--progress", "none", program=program)
        deadline = time.monotonic() + 150
        while not (self.run_dir / "summary.json").exists():
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        self.assertGreater(len(self.metrics()), 1 << 16)
        self.lines.touch()
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        row.check(self, err, FILE=sys.executable, CODE=0)

    def test_the_example_for_mlflow(self):
        (self.folder / "mlflow.py").write_text("""
import contextlib, json, os
start_run = contextlib.nullcontext
def log_metrics(metrics, step):
    with open(os.environ["LOGGED"], "a") as file:
        print(json.dumps([step, metrics]), file=file)
""")
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "LOGGED": str(self.lines)}
        command = json.dumps([sys.executable, "examples/mlflow_log.py"])
        subprocess.run([BINARY, "--config", LINEAR, f"logging.command={command}", "--run-dir", self.run_dir], cwd=ROOT, env=environment, check=True,
                       capture_output=True, timeout=100)
        events = [event for event in map(json.loads, self.metrics().splitlines()) if event["event"] in ("train", "validation")]
        logged = [json.loads(line) for line in self.lines.read_text().splitlines()]
        self.assertEqual([(step, metrics[f"{event['event']}/loss"]) for (step, metrics), event in zip(logged, events, strict=True)],
                         [(event["step"], event["loss"]) for event in events])

    @plants("The program of `logging.command` is not there")
    def test_a_program_that_cannot_be_started_is_an_error_before_training(self, row):
        config = self.folder / "x.yaml"
        config.write_text(LINEAR.read_text().replace("every_steps: 10", "command: [no_such_program, x]"))
        line = len(config.read_text().splitlines())
        for launcher in ((), ("launch", "--nproc-per-node", "2")):
            run = subprocess.run([BINARY, *launcher, "--config", config, "--run-dir", self.run_dir], cwd=ROOT, capture_output=True, text=True)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertEqual(run.stderr.count(f"error: {config}:{line}:20: logging.command: cannot start \"no_such_program\": it is not in any absolute folder of PATH; "
                                              "correct it, or set logging.command=[] to train without it\n"), 1, run.stderr)
            self.assertFalse(self.run_dir.exists())
            row.check(self, run.stderr, run.returncode)


if __name__ == "__main__":
    unittest.main()
