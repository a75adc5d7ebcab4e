"""Runs of the program as a user starts it. TRAINER_BINARY is the program."""

import csv
import json
import os
import pathlib
import re
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from launches import write_safetensors  # noqa: E402
from program import LINEAR, ProgramCase, events, start, trainer  # noqa: E402
from troubleshooting import plants  # noqa: E402


def results(run_dir):
    """The events that have to be the same in equal runs."""
    keys = ("event", "epoch", "step", "loss", "top1", "top5", "lr", "num_samples")
    # Omits events of checkpoints, because the time at which a checkpoint is written varies.
    return [{key: event[key] for key in keys if key in event} for event in events(run_dir) if event["event"] != "checkpoint"]


class TrainerTest(ProgramCase):
    def test_files_of_a_run(self):
        run = self.trained("--config", LINEAR)
        self.assertEqual(run.out, "")
        self.assertNotIn("\x1b", run.err)
        self.assertRegex(run.err, r"epoch 1/5  step 10/32  loss \d\.\d{4}  mae \d\.\d{4}  lr 0\.0100  \d+ img/s  data \d+%  mem \d+\.\d [KMG]iB  ETA ")
        for name in ("config.yaml", "environment.json", "train.log", "metrics.jsonl", "metrics.csv", "tensorboard", "summary.json"):
            self.assertTrue((self.run_dir / name).exists(), name)
        train = events(self.run_dir, "train")
        self.assertEqual([event["step"] for event in train[:4]], [10, 20, 30, 32])
        self.assertLessEqual({"event", "time", "epoch", "step", "loss", "lr", "images_per_second", "data_wait", "queue_depth"}, set(train[0]))
        self.assertEqual([event["num_samples"] for event in events(self.run_dir, "validation")], [256] * 5)
        summary = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual((summary["reason"], summary["step"], summary["monitor"]), ("done", 160, "validation/loss"))
        environment = json.loads((self.run_dir / "environment.json").read_text())
        if "with bfloat16 autocast" in run.err:
            self.assertIn(environment["convolution"], ("winograd4", "direct"))  # direct on a processor with AMX
        else:
            self.assertEqual(environment["convolution"], "winograd4")
        self.assertTrue(environment["fused_operators"])
        self.assertRegex(environment["libtorch_version"], r"^\d+\.\d+\.\d+")
        self.assertIn(f"LibTorch {environment['libtorch_version']}\n", trainer("--version").out)
        self.assertEqual(len((self.run_dir / "metrics.csv").read_text().splitlines()), 6)

    def test_epochs_have_the_same_numbers_everywhere(self):
        run = self.trained("--config", LINEAR, "training.epochs=2", "checkpoint.every_steps=20")
        # 32 steps are an epoch. Files count epochs from 0, the console from 1.
        for event in events(self.run_dir):
            self.assertEqual(event["epoch"], max(event["step"] - 1, 0) // 32, event)
        with (self.run_dir / "metrics.csv").open() as table:
            self.assertEqual([(row["epoch"], row["step"]) for row in csv.DictReader(table)], [("0", "32"), ("1", "64")])
        summary = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual([(part["epoch"], part["step"]) for part in (summary, summary["final"])], [(1, 64), (1, 64)])
        best = summary["best"]
        self.assertIn(f"in epoch {best['epoch'] + 1}, step {best['step']}\n", run.err)
        # The first step has a line, but no event.
        shown = [int(number) for number in re.findall(r"(?m)^(?:validation  )?epoch (\d)/2  (?!step 1/32 )", run.err)]
        self.assertEqual(shown, [event["epoch"] + 1 for event in events(self.run_dir) if event["event"] in ("train", "validation")])

    def test_the_resolved_file_reproduces_the_run(self):
        self.assertEqual(self.train("--config", LINEAR, "training.epochs=2").returncode, 0)
        again = self.folder / "again"
        self.ran("--config", self.run_dir / "config.yaml", "--run-dir", again)
        self.assertEqual(results(again), results(self.run_dir))
        self.assertEqual((again / "config.yaml").read_text(), (self.run_dir / "config.yaml").read_text())

    def test_a_finished_run_is_not_changed(self):
        self.assertEqual(self.train("--config", LINEAR).returncode, 0)
        before = (self.run_dir / "metrics.jsonl").read_text()
        again = self.train("--config", LINEAR)
        self.assertEqual(again.returncode, 0)
        self.assertIn("holds a finished run", again.err)
        for change, difference in (("optimizer.lr=0.5", "optimizer.lr: 0.5, not 0.01"), ("seed=7", "seed: 7, not 42"),
                                   ("training.epochs=2", "training.epochs: 2, not 5"),
                                   ("logging.every_steps=3", "logging.every_steps: 3, not 10")):
            with self.subTest(change):
                other = self.train("--config", LINEAR, change)
                self.assertEqual(other.returncode, 2, other.err)
                self.assertIn(f"{self.run_dir} holds a finished run with another configuration ({difference}); undo this change", other.err)
        self.assertEqual((self.run_dir / "metrics.jsonl").read_text(), before)

    def test_another_number_of_threads_is_a_warning(self):
        one = self.train("--config", LINEAR, "training.epochs=1", "runtime.threads=1")
        self.assertIn("\n1 compute thread: runtime.threads\n", one.err)
        warning = (r"warning: \S+: the run used 1 thread until this checkpoint and uses 2 from now on, .*; set runtime.threads=1 to continue with "
                   "the same number\n")
        for threads, expect in ((2, self.assertRegex), (1, self.assertNotRegex)):
            longer = self.ran("--config", LINEAR, "training.epochs=2", f"runtime.threads={threads}", "--resume", self.run_dir,
                              "--run-dir", self.folder / str(threads))
            expect(longer.err, warning)
        chosen = trainer("--config", LINEAR, "training.epochs=1", "--run-dir", self.folder / "chosen", env={**os.environ, "OMP_NUM_THREADS": "3"})
        self.assertIn("\n3 compute threads: OMP_NUM_THREADS=3\n", chosen.err)

    def test_a_finished_run_goes_on_to_more_epochs(self):
        straight = self.folder / "straight"
        self.assertEqual(trainer("--config", LINEAR, "--run-dir", straight).returncode, 0)
        self.assertEqual(self.train("--config", LINEAR, "training.epochs=3").returncode, 0)
        longer = self.trained("--config", LINEAR)
        self.assertIn("changed since the checkpoint: training.epochs: 5, not 3", longer.err)
        self.assertIn("resumes from", longer.err)
        # The schedule is constant, so the results do not depend on the end of the first run.
        measured = [[event for event in results(run_dir) if event["event"] in ("train", "validation")] for run_dir in (self.run_dir, straight)]
        self.assertEqual(*measured)
        again = self.train("--config", LINEAR)
        self.assertEqual(again.returncode, 0)
        self.assertIn("holds a finished run", again.err)

    @plants("A finished run is started again with another configuration", "An extended run has nothing left to train")
    def test_a_finished_run_is_extended_with_another_learning_rate_on_purpose(self, of_another, complete):
        self.assertEqual(self.train("--config", LINEAR, "training.epochs=2").returncode, 0)
        changes = ("training.epochs=3", "optimizer.lr=0.001", "lr_scheduler={name: linear}")
        refused = self.train("--config", LINEAR, *changes)
        of_another.check(self, refused.err, refused.returncode, FILE=self.run_dir)
        nothing = self.train("--config", LINEAR, "training.epochs=2", "optimizer.lr=0.001", "training.extend=true")
        complete.check(self, nothing.err, nothing.returncode, FILE=self.run_dir, NUMBER=2)
        longer = self.trained("--config", LINEAR, *changes, "training.extend=true")
        self.assertIn(f"the finished run in {self.run_dir} continues from step 64", longer.err)
        self.assertIn("optimizer.lr: 0.001, not 0.01", longer.err)
        # The new schedule covers the whole training, of which a third is left.
        lines = [event for event in events(self.run_dir) if event["event"] == "train" and event["step"] > 64]
        self.assertAlmostEqual(lines[0]["lr"], 0.001 * (96 - lines[0]["step"] + 1) / 96, delta=1e-12)
        again = self.train("--config", LINEAR, *changes, "training.extend=true")
        self.assertEqual(again.returncode, 0)
        self.assertIn("holds a finished run", again.err)

    @plants("A run that has ended early is to be trained further")
    def test_a_run_that_ends_early(self, row):
        early = ("--config", LINEAR, "optimizer.lr=0", "training.epochs=20", "training.early_stopping={patience: 3}")
        run = self.trained(*early)
        self.assertRegex(run.err, r"early  128 steps  .* in 3 consecutive validations \(training\.early_stopping\)\n")
        self.assertIn(f"to evaluate: trainer eval --checkpoint {self.run_dir}/checkpoints/best.pt", run.err)
        summary = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual((summary["reason"], summary["step"], summary["best"]["step"]), ("early", 128, 32))
        self.assertIn("holds a finished run", self.train(*early).err)
        self.assertRegex(trainer("runs", self.folder).out, r" early +4/20 ")
        further = self.train(*early, "training.epochs=30")
        row.check(self, further.err, further.returncode, FILE=self.run_dir, NUMBER=3)
        self.trained(*early, "training.early_stopping={patience: 5}", "training.extend=true")
        # training.extend is not a setting of the training, so the run counts as finished without it too.
        again = self.trained(*early, "training.early_stopping={patience: 5}")
        self.assertIn("holds a finished run", again.err)
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["step"], 192)
        straight = self.folder / "straight"
        self.assertEqual(trainer(*early, "training.early_stopping={patience: 5}", "--run-dir", straight).returncode, 0)
        ends = [[event for event in results(folder) if event["event"] in ("train", "validation")] for folder in (self.run_dir, straight)]
        self.assertEqual(*ends)

    def test_interrupt_saves_and_the_run_resumes(self):
        process = start("--config", LINEAR, "training.epochs=1000000", "--run-dir", self.run_dir)
        for line in process.stderr:
            if line.startswith("epoch 2"):
                break
        second = self.train("--config", LINEAR)
        self.assertEqual(second.returncode, 2)
        self.assertIn(f"process {process.pid}", second.err)
        process.send_signal(signal.SIGINT)
        self.assertIn("stopped", process.stderr.read())
        process.stderr.close()
        process.stdout.close()
        self.assertEqual(process.wait(), 75)
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["reason"], "stopped")
        none = self.train("--config", LINEAR, "--resume", "none")
        self.assertEqual(none.returncode, 2)
        self.assertIn("holds an unfinished run, which is not overwritten", none.err)
        again = self.trained("--config", LINEAR)
        resumed = re.search(r"resumes from \S+: epoch (\d+), step (\d+)\n", again.err)
        event = events(self.run_dir, "resume")[-1]
        self.assertEqual((event["epoch"] + 1, event["step"]), tuple(map(int, resumed.groups())))

    def test_a_non_finite_step_is_saved_and_replayed(self):
        run = self.train("--config", LINEAR, "optimizer.lr=1.0e30")
        self.assertEqual(run.returncode, 1)
        match = re.search(r"error: step (\d+) is not finite, at learning rate 1e\+30: the first non-finite value is in (the .*); the step is "
                         r"skipped and saved for `trainer replay (.*)`; lower optimizer.lr", run.err)
        self.assertIsNotNone(match, run.err)
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["reason"], "failed")
        self.assertEqual((self.run_dir / "train.log").read_text().count("is not finite"), 1)
        self.assertEqual(run.err.count("is not finite"), 1)
        step, first, folder = match.groups()
        replayed = self.ran("replay", folder)
        self.assertTrue(replayed.out.startswith(f"step {step} of epoch 1, learning rate 1e+30\n"), replayed.out)
        self.assertTrue(replayed.out.endswith(f"\nfirst not finite: {first}, as in the run\n"), replayed.out)
        finite = trainer("replay", folder, "runtime.dtype=float64", "amp.enabled=false")
        self.assertEqual(finite.returncode, 1, finite.out)
        self.assertEqual(finite.err.splitlines()[-1], f"error: step {step} is finite in this repetition, but in the run {first} was not finite; "
                         "if no override explains this, test the memory or GPU of the host that trained this step")
        nothing = trainer("replay", self.folder)
        self.assertEqual(nothing.returncode, 3)
        self.assertIn(f"{self.folder}/step.json: there is no such file; give a folder in which a run saved a step, such as runs/my_run/non_finite/step_12", nothing.err)

    def test_training_begins_with_the_weights_of_a_file(self):
        weights = self.folder / "weights.safetensors"
        # With these weights the first step is not finite; with initial weights it would be finite.
        write_safetensors(weights, {"fc.weight": ([10, 10], [3e38] * 100), "fc.bias": ([3], [0] * 3)})
        run = self.train("--config", LINEAR, f"model.init_from={weights}", "model.init_strict=false")
        self.assertIn(f"the model starts with 1 tensor of {weights}; skipped: not fitting fc.bias (Float[3] in the file, Float[10] in the model)\n", run.err)
        self.assertIn("step 0 is not finite", run.err)
        missing = trainer("--config", LINEAR, f"model.init_from={self.folder}/absent.pt", "--run-dir", self.folder / "again")
        self.assertEqual((missing.returncode, f"{self.folder}/absent.pt" in missing.err), (5, True), missing.err)


if __name__ == "__main__":
    unittest.main()
