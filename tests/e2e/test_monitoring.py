"""`logging.profile_steps`, `logging.histograms_every_epochs` and `logging.tensorboard` on the program."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import BINARY, FolderCase  # noqa: E402

# 8 steps in each of two epochs.
CONFIG = """
experiment: monitoring
model: {name: resnet20}
dataset: {name: synthetic, shape: [3, 16, 16], num_classes: 10, num_train: 64, num_validation: 16}
dataloader: {global_batch_size: 8}
optimizer: {name: sgd, lr: 0.01}
runtime: {device: cpu}
training: {epochs: 2}
logging: {every_steps: 4}
"""
# The keys of events that are the same in equal runs.
RESULTS = ("event", "epoch", "step", "loss", "top1", "top5", "lr", "num_samples")


class MonitoringTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.config = self.folder / "x.yaml"
        self.config.write_text(CONFIG)

    def train(self, name, *overrides, command=(), code=0):
        arguments = [BINARY, *command, "--config", self.config, "--run-dir", self.folder / name, *overrides]
        run = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=200)
        self.assertEqual(run.returncode, code, run.stderr)
        return run

    def stop(self, name, *overrides):
        """Stops a run after it has trained a few steps; returns its output."""
        arguments = [BINARY, "--config", self.config, "--run-dir", self.folder / name, "--progress", "plain", *overrides]
        process = subprocess.Popen(list(map(str, arguments)), stderr=subprocess.PIPE, text=True)
        text = ""
        while text.count("step ") < 3:
            line = process.stderr.readline()
            self.assertTrue(line, text)
            text += line
        process.send_signal(signal.SIGTERM)
        text += process.communicate(timeout=100)[1]
        self.assertEqual(process.returncode, 75, text)
        return text

    def results(self, name):
        lines = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return [{key: line[key] for key in RESULTS if key in line} for line in lines if line["event"] in ("train", "validation", "end")]

    def trace(self, name):
        return json.loads((self.folder / name / "profile.json").read_text())["traceEvents"]

    def steps_of_trace(self, name):
        return sorted({event["name"] for event in self.trace(name) if event["name"].startswith("ProfilerStep#") and "dur" in event})

    def costs_of_trace(self, name):
        """Operation -> (calls, milliseconds without the operations within them)."""
        costs, open_ranges = {}, []
        ranges = [event for event in self.trace(name) if "dur" in event and event.get("cat") in ("cpu_op", "user_annotation")]
        for event in sorted(ranges, key=lambda event: (event["tid"], event["ts"], -event["dur"])):
            title = "(outside of operations)" if event["name"].startswith("ProfilerStep#") else event["name"]
            while open_ranges and (open_ranges[-1][0] != event["tid"] or open_ranges[-1][1] <= event["ts"]):
                open_ranges.pop()
            calls, milliseconds = costs.get(title, (0, 0))
            costs[title] = (calls + 1, milliseconds + event["dur"] / 1000)
            if open_ranges:
                calls, milliseconds = costs[open_ranges[-1][2]]
                costs[open_ranges[-1][2]] = (calls, milliseconds - event["dur"] / 1000)
            open_ranges.append((event["tid"], event["ts"] + event["dur"], title))
        return costs

    def table(self, run):
        """Operation -> (calls, milliseconds, percent), in the order of the log."""
        rows = re.findall(r"^  (\S.*?) +(\d+) +(\d+\.\d\d) ms +(\d+\.\d) %$", run.stderr, re.MULTILINE)
        return {name: (int(calls), float(time), float(share)) for name, calls, time, share in rows}

    def test_profile(self):
        plain = self.train("plain", "runtime.convolution=direct", "runtime.fuse=off")
        self.assertNotIn("profile", plain.stderr)
        self.assertFalse((self.folder / "plain" / "profile.json").exists())
        run = self.train("profiled", "runtime.convolution=direct", "runtime.fuse=off", "logging.profile_steps=[3, 6]")
        self.assertEqual(self.results("profiled"), self.results("plain"))
        self.assertIn(f"profile of steps 4 to 6, in {self.folder / 'profiled' / 'profile.json'}", run.stderr)
        self.assertEqual(self.steps_of_trace("profiled"), ["ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6"])
        # A convolution for each of the 19 layers of ResNet-20, in each of three steps, and their gradients.
        names = [event["name"] for event in self.trace("profiled") if "dur" in event]
        self.assertEqual(names.count("aten::convolution"), 3 * 19)
        self.assertEqual(names.count("aten::convolution_backward"), 3 * 19)
        # The profiler's own log output is suppressed.
        self.assertNotRegex(run.stderr, "STAGE|kineto|Kineto")
        table = self.table(run)
        self.assertEqual(len(table), 10, run.stderr)
        self.assertEqual([time for _, time, _ in table.values()], sorted((time for _, time, _ in table.values()), reverse=True))
        self.assertLessEqual(sum(share for _, _, share in table.values()), 100.5)
        for name, (calls, milliseconds) in self.costs_of_trace("profiled").items():
            if name in table:
                self.assertEqual(table[name][0], calls, name)
                self.assertAlmostEqual(table[name][1], milliseconds, delta=0.02 + 1e-3 * milliseconds, msg=name)
        convolutions = [calls for name, (calls, _, _) in table.items() if "convolution" in name]
        self.assertTrue(convolutions and all(calls == 57 for calls in convolutions), table)

    def test_profile_names_own_kernels(self):
        self.train("run", "runtime.convolution=winograd4", "amp.enabled=false", "logging.profile_steps=[0, 2]")
        names = [event["name"] for event in self.trace("run")]
        # The 19 normalisations of each step, forward and backward; 16 of the convolutions have stride 1 and enough channels for Winograd's
        # algorithm.
        for name, count in (("fused_norm", 19), ("fused_norm_backward", 19), ("winograd_convolution", 32), ("winograd_weight_gradient", 16)):
            self.assertEqual(names.count(f"trainer::{name}"), 2 * count, name)

    def test_profile_of_a_run_that_is_stopped_and_resumed(self):
        overrides = ("training.epochs=1000", "logging.every_steps=1", "logging.profile_steps=[0, 5000]")
        ranges = []
        for _ in range(2):
            stopped = self.stop("run", *overrides)
            first, last = map(int, re.search(r"profile of steps (\d+) to (\d+), in ", stopped).groups())
            self.assertEqual(self.steps_of_trace("run"), sorted(f"ProfilerStep#{step}" for step in range(first, last + 1)))
            ranges.append((first, last))
        self.assertEqual(ranges[0][0], 1)
        self.assertEqual(ranges[1][0], ranges[0][1] + 1)

    def test_profile_of_one_rank(self):
        ranks = ("launch", "--nproc-per-node", "2", "--")
        run = self.train("run", "logging.profile_steps=[1, 3]", command=ranks)
        self.assertEqual(run.stderr.count("profile of steps 2 to 3"), 1, run.stderr)
        self.assertEqual(self.steps_of_trace("run"), ["ProfilerStep#2", "ProfilerStep#3"])
        self.train("plain", command=ranks)
        self.assertEqual(self.results("run"), self.results("plain"))

    def test_profile_that_the_training_does_not_reach(self):
        run = self.train("beyond", "logging.profile_steps=[16, 20]")
        self.assertIn("logging.profile_steps: the run has 16 steps, so no step after step 16 can be profiled", run.stderr)
        self.assertIn("logging.profile_steps: nothing was profiled, because training ended before step 17; choose earlier steps", run.stderr)
        self.assertFalse((self.folder / "beyond" / "profile.json").exists())
        run = self.train("part", "logging.profile_steps=[14, 20]")
        self.assertIn("profile of steps 15 to 16, in ", run.stderr)
        self.assertEqual(self.steps_of_trace("part"), ["ProfilerStep#15", "ProfilerStep#16"])

    def test_profile_that_cannot_be_written(self):
        blocked = self.folder / "run" / "profile.json"
        blocked.mkdir(parents=True)
        (blocked / "file").touch()
        # Without this file, the folder would be refused because no run has created it.
        (self.folder / "run" / ".trainer_run").write_text("trainer run directory, format 1\nprofile.json\n")
        run = self.train("run", "logging.profile_steps=[1, 2]")
        self.assertIn(f"warning: {blocked} cannot be written; training continues, and the log contains the table of the profile", run.stderr)
        self.assertEqual(len(self.table(run)), 10, run.stderr)

    def test_histograms_change_nothing(self):
        self.train("plain")
        self.train("reported", "logging.histograms_every_epochs=1")
        self.assertEqual(self.results("reported"), self.results("plain"))
        sizes = [sum(file.stat().st_size for file in (self.folder / name / "tensorboard").iterdir()) for name in ("plain", "reported")]
        self.assertGreater(sizes[1], sizes[0] + 50_000)


if __name__ == "__main__":
    unittest.main()
