"""Runs that are killed, stopped, moved and continued: no step is lost or repeated."""

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from equal_runs import RUN, results_of, tensors  # noqa: E402
from launches import BINARY, FAULTS, ROOT, LaunchCase, ranks_of  # noqa: E402
from troubleshooting import plants  # noqa: E402

# How often a run is killed at each point of a save, and at a random time.
KILLS_AT_POINTS = int(os.environ.get("TRAINER_TEST_KILLS_AT_POINTS", "1"))
KILLS_AT_RANDOM = int(os.environ.get("TRAINER_TEST_KILLS_AT_RANDOM", "5"))
POINTS = ("opened", "half_written", "before_fsync", "before_rename", "before_link")


def saved_checkpoints(run_dir):
    """The checkpoint events of a run, without times."""
    events = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [(event["epoch"], event["step"], pathlib.Path(event["file"]).name) for event in events if event["event"] == "checkpoint"]


def environment(fault):
    return {**os.environ, "LD_PRELOAD": FAULTS, "TRAINER_TEST_FAULT": fault, "OMP_NUM_THREADS": "1", "RANK": "0", "WORLD_SIZE": "1",
            "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}


class CheckpointsTest(LaunchCase):
    def begin(self, *args, fault="none", run_dir=None):
        command = [BINARY, *map(str, RUN), "--run-dir", str(run_dir or self.run_dir), *args]
        env = {**environment(fault), "MASTER_PORT": str(self.port)}
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def train(self, *args, **options):
        """Trains to the end; returns stderr and the exit code."""
        process = self.begin(*args, **options)
        _, err = process.communicate(timeout=120)
        return err, process.returncode

    def trained(self, *args, **options):
        """Trains to a successful end; returns stderr."""
        err, code = self.train(*args, **options)
        self.assertEqual(code, 0, err)
        return err

    def straight(self, *args):
        """An uninterrupted run; returns its run directory."""
        run_dir = self.folder / "straight"
        self.trained(*args, run_dir=run_dir)
        return run_dir

    def assert_equal_runs(self, run_dir, straight):
        self.assertEqual(results_of(run_dir), results_of(straight))
        self.assertEqual(tensors(run_dir), tensors(straight))
        self.assertEqual(list((run_dir / "checkpoints").glob("*.tmp*")), [])

    def test_killed_at_each_point_of_a_save(self):
        straight = self.straight()
        for point in POINTS:
            for number in range(KILLS_AT_POINTS):
                with self.subTest(point, number=number):
                    self.run_dir = self.folder / f"{point}-{number}"
                    err, code = self.train(fault=f"0 save_{point} {3 + number} kill")
                    self.assertEqual(code, -signal.SIGKILL, err)
                    err = self.trained()
                    self.assertIn("resumes from", err)
                    self.assert_equal_runs(self.run_dir, straight)
                    self.assertEqual(saved_checkpoints(self.run_dir), saved_checkpoints(straight))

    def test_killed_before_the_last_checkpoint_is_linked(self):
        straight = self.straight()
        err, code = self.train(fault=f"0 save_before_link {len(saved_checkpoints(straight)) + 1} kill")
        self.assertEqual(code, -signal.SIGKILL, err)
        self.assertEqual((self.run_dir / "checkpoints/last.pt").resolve().name, "step_00000028.pt")
        self.trained()
        self.assert_equal_runs(self.run_dir, straight)
        self.assertEqual(saved_checkpoints(self.run_dir), saved_checkpoints(straight))
        files = [sorted(file.name for file in (run / "checkpoints").iterdir()) for run in (self.run_dir, straight)]
        self.assertEqual(files[0], files[1])

    def test_killed_at_any_moment(self):
        straight = self.straight()
        chance = random.Random(time.time_ns())
        for number in range(KILLS_AT_RANDOM):
            seconds = chance.uniform(0.2, 3)
            with self.subTest(seconds=seconds):
                self.run_dir = self.folder / f"random-{number}"
                process = self.begin()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(seconds)
                process.kill()
                process.communicate()
                self.trained()
                self.assert_equal_runs(self.run_dir, straight)
                self.assertEqual(saved_checkpoints(self.run_dir), saved_checkpoints(straight))

    def test_stop_requests_in_each_phase(self):
        """One of two ranks gets SIGTERM twice, as from a launcher and a scheduler, during start-up, training, validation and saving."""
        straight = self.folder / "straight"
        process = self.launch(straight)
        output = self.end(process)
        self.assertEqual(process.returncode, 0, output)
        # The fault makes a rank wait, so that it is in the tested phase when the signal arrives, or not much beyond it.
        for rank, when, fault, sign in ((0, "start", "0 training 12 wait", "quickstart: cpu"), (1, "training", "0 training 12 wait", "training"),
                                        (0, "validation", "1 validation 1 wait", "epoch 1/3  step 10"),
                                        (1, "saving", "0 save_opened 1 wait", "epoch 1/3  step 10")):
            with self.subTest(when):
                process = self.launch(self.folder / when, fault)
                output = self.wait_for_training(process, sign)
                if when != "start":
                    time.sleep(0.7)
                for _ in range(2):
                    os.kill(ranks_of(process)[rank], signal.SIGTERM)
                output += self.end(process)
                self.assertEqual((process.returncode, self.exit_codes()), (75, [75, 75]), output)
                output = self.end(process := self.launch(self.run_dir))
                self.assertEqual(process.returncode, 0, output)
                self.assert_equal_runs(self.run_dir, straight)

    def launch(self, run_dir, fault="none"):
        """Starts two ranks."""
        self.run_dir = run_dir
        return self.start(fault, num_ranks=2, settings=RUN[2:])

    def test_max_minutes_stops_the_run(self):
        err, code = self.train("training.max_minutes=0.1", "training.epochs=100000")
        self.assertEqual(code, 75, err)
        err, code = self.train("training.max_minutes=0.02", "training.epochs=100000")
        self.assertEqual(code, 75, err)
        self.assertIn("resumes from", err)

    @plants("The newest checkpoint is damaged")
    def test_a_damaged_checkpoint_is_named_and_skipped(self, row):
        straight = self.straight()
        err, code = self.train("training.epochs=3", fault="0 training 24 kill")
        files = sorted((self.run_dir / "checkpoints").glob("step_*.pt"))
        os.truncate(files[-1], files[-1].stat().st_size // 2)
        err = self.trained()
        self.assertIn(f"resumes from {files[-2]}", err)
        row.check(self, err)
        self.assert_equal_runs(self.run_dir, straight)

    @plants("No checkpoint can be read")
    def test_only_damaged_checkpoints(self, row):
        self.train(fault="0 training 18 kill")
        for file in (self.run_dir / "checkpoints").glob("step_*.pt"):
            os.truncate(file, 100)
        before = (self.run_dir / "metrics.jsonl").read_text()
        err, code = self.train()
        row.check(self, err, code)
        self.assertEqual((self.run_dir / "metrics.jsonl").read_text(), before)

    @plants("The disk is full when a checkpoint is saved")
    def test_a_checkpoint_that_cannot_be_written(self, row):
        err, code = self.train(fault="0 save_half_written 2 full")
        row.check(self, err)
        self.assertEqual(code, 0, err)
        self.assert_equal_runs(self.run_dir, self.straight())

    @plants("The disk is full when the last checkpoint is saved")
    def test_the_last_checkpoint_cannot_be_written(self, row):
        err, code = self.train("checkpoint.every_steps=null", "checkpoint.every_epochs=null", "training.epochs=1", fault="0 save_half_written 0 full")
        row.check(self, err, code)

    @plants("The run directory is removed, and another run makes it again")
    def test_a_lost_lock(self, row):
        straight = self.straight()
        first = self.begin("training.epochs=1000000")
        self.wait_for(lambda: self.steps_done() > 0)
        self.run_dir.rename(self.folder / "moved")
        second = self.begin()
        _, err = first.communicate(timeout=60)
        row.check(self, err, first.returncode, FILE=self.run_dir, PROCESS=second.pid)
        _, err = second.communicate(timeout=60)
        self.assertEqual(second.returncode, 0, err)
        self.assert_equal_runs(self.run_dir, straight)
        self.assertEqual(saved_checkpoints(self.run_dir), saved_checkpoints(straight))
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["reason"], "done")

    @plants("A name in the run directory is a symbolic link")
    def test_links_are_not_followed(self, row):
        for name in ("metrics.jsonl", "checkpoints"):
            with self.subTest(name):
                self.run_dir = self.folder / f"with_link_{name}"
                self.run_dir.mkdir()
                (self.run_dir / name).symlink_to(self.folder / "elsewhere")
                err, code = self.train()
                row.check(self, err, code, FILE=self.run_dir)
                self.assertFalse((self.folder / "elsewhere").exists())

    @plants("The folder of checkpoints cannot be written to")
    def test_a_folder_that_cannot_be_written_to(self, row):
        self.run_dir.mkdir()
        (self.run_dir / ".trainer_run").write_text("trainer run directory, format 1\n")
        (self.run_dir / "checkpoints").write_text("")
        err, code = self.train("--resume", "auto")
        row.check(self, err, code)
        self.assertNotIn("epoch 1/3", err)

    @plants("The run directory holds files that no run has written")
    def test_a_folder_of_somebody_else(self, row):
        mine = {"config.yaml": "mine", "checkpoints/epoch_10.pth": "mine", "tensorboard/events.out.tfevents.1.host.2": "mine"}
        for name, text in mine.items():
            file = self.run_dir / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        for args in ((), ("--resume", "none")):
            err, code = self.train(*args)
            row.check(self, err, code, FILE=self.run_dir, TEXT="config.yaml, checkpoints, tensorboard")
            files = {str(path.relative_to(self.run_dir)): path.read_text() for path in self.run_dir.rglob("*") if path.is_file()}
            self.assertEqual(files, mine)

    @plants("The checkpoints of an unfinished run were moved or renamed")
    def test_renamed_checkpoints_stay(self, row):
        straight = self.straight()
        self.train(fault="0 training 18 kill")
        checkpoints = self.run_dir / "checkpoints"
        kept = {}
        for file in sorted(checkpoints.glob("step_*.pt")):
            renamed = file.rename(checkpoints / f"kept_{file.name}")
            kept[renamed.name] = renamed.read_bytes()
        self.assertEqual(len(kept), 2)
        (self.run_dir / "tensorboard" / "events.out.tfevents.1.host.2.0").write_bytes(b"")
        err, code = self.train()
        row.check(self, err, FILE=self.run_dir)
        self.assertEqual(code, 0, err)
        self.assertEqual({name: (checkpoints / name).read_bytes() for name in kept}, kept)
        self.assertTrue((self.run_dir / "tensorboard" / "events.out.tfevents.1.host.2.0").exists())
        self.assert_equal_runs(self.run_dir, straight)

    def test_a_resumed_run_in_another_folder_has_the_best_checkpoint(self):
        def best_step(run_dir):
            step = json.loads((run_dir / "summary.json").read_text())["best"]["step"]
            out = self.ran("checkpoint", "info", run_dir / "checkpoints" / "best.pt").out
            self.assertRegex(out, rf"(?m)^step +{step}$")
            return step

        straight = self.straight()
        step = best_step(straight)
        # With a learning rate of 0, no validation improves.
        longer = ("training.epochs=4", "optimizer.lr=0", "lr_scheduler={name: constant}")
        err = self.trained("--resume", str(straight), *longer)
        self.assertEqual(best_step(self.run_dir), step)
        self.assertIn("best.pt is ", err)
        # Resumes from the folder of the resumed run, where best.pt is a file.
        self.trained("--resume", str(self.run_dir), *longer, "training.epochs=5", run_dir=self.folder / "third")
        self.assertEqual(best_step(self.folder / "third"), step)

    def test_resume_option(self):
        self.assertEqual(self.train("checkpoint.keep_last=100")[1], 0)
        err, code = self.train("--resume", "none")
        self.assertEqual(code, 2)
        self.assertIn("holds a finished run, which is not overwritten", err)
        checkpoint = self.run_dir / "checkpoints" / "step_00000007.pt"
        # Any checkpoint can be resumed into another folder. In the folder of the run, newer checkpoints would be lost.
        other = self.folder / "other"
        err = self.trained("--resume", str(checkpoint), run_dir=other)
        self.assertIn(f"resumes from {checkpoint}: epoch 1, step 7", err)
        self.assertEqual(tensors(other), tensors(self.straight()))
        (self.run_dir / "summary.json").unlink()
        err, code = self.train("--resume", str(checkpoint))
        self.assertEqual(code, 2, err)
        self.assertIn("holds newer checkpoints, which would be lost", err)
        err, code = self.train("--resume", str(self.folder / "nothing.pt"))
        self.assertEqual(code, 5, err)

    def test_resume_from_the_folder_of_a_run(self):
        straight = self.straight("checkpoint.keep_last=100")
        for file in ("step_00000014.pt", "step_00000021.pt"):
            (straight / "checkpoints" / file).rename(self.folder / file)
        # The newest remaining checkpoint is the one at the end of the training.
        err, code = self.train("--resume", str(straight))
        self.assertEqual(code, 2, err)
        self.assertRegex(err, r"error: --resume \S+/step_00000030\.pt: its training of 3 epochs is complete; raise training\.epochs")
        self.trained("--resume", str(straight), "training.epochs=4", run_dir=self.folder / "longer")
        for folder in (straight, straight / "checkpoints"):
            newest = straight / "checkpoints" / "step_00000030.pt"
            if newest.exists():
                newest.rename(self.folder / newest.name)
            err = self.trained("--resume", str(folder), run_dir=self.folder / folder.name / "resumed")
            self.assertRegex(err, r"resumes from \S+/step_00000028\.pt")
        empty = self.folder / "empty"
        empty.mkdir()
        err, code = self.train("--resume", str(empty), run_dir=self.folder / "none")
        self.assertEqual(code, 2, err)
        self.assertIn(f"error: --resume {empty}: this folder contains no checkpoint; give the folder of a run that has saved one, or a file", err)
        # Resumes an earlier checkpoint in the folder of the finished run.
        err, code = self.train("--resume", str(straight / "checkpoints" / "step_00000007.pt"), "checkpoint.keep_last=100", run_dir=straight)
        self.assertEqual(code, 2, err)
        self.assertIn("holds a finished run; choose another --run-dir to resume from this checkpoint", err)

    def test_a_number_of_steps(self):
        def train_to(steps, *args, **options):
            return self.train("training.epochs=null", f"training.steps={steps}", *args, **options)

        def summary():
            return json.loads((self.run_dir / "summary.json").read_text())

        err, code = self.train("training.steps=14")
        self.assertEqual(code, 2, err)
        self.assertIn("command line: training.steps: given together with training.epochs; set one of them to null", err)
        err, code = train_to(14)
        self.assertEqual(code, 0, err)
        self.assertIn("training  14 steps  10 steps per epoch", err)
        self.assertIn("epoch 2/2  step 4/4", err)
        self.assertEqual((summary()["step"], summary()["epoch"], summary()["final"]["step"]), (14, 1, 14))
        err, code = train_to(14)
        self.assertEqual(code, 0, err)
        self.assertIn("holds a finished run", err)
        err, code = train_to(14, "--resume", str(self.run_dir), run_dir=self.folder / "other")
        self.assertEqual(code, 2, err)
        self.assertRegex(err, r"error: --resume \S+/step_00000014\.pt: its training of 14 steps is complete; raise training\.steps to train")
        err, code = train_to(16, "--resume", str(self.run_dir), "dataloader.sampler.name=class_balanced", run_dir=self.folder / "other")
        self.assertEqual(code, 2, err)
        self.assertIn("was saved with another configuration (dataloader.sampler.name: class_balanced, not shuffled; ", err)
        err, code = train_to(16)
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"resumes from \S+/step_00000014\.pt: epoch 2, step 14")
        self.assertIn("epoch 2/2  step 6/6", err)
        self.assertEqual((summary()["step"], summary()["final"]["step"]), (16, 16))

    def test_files_of_other_kinds(self):
        text = self.folder / "text.pt"
        text.write_text("not a checkpoint")
        empty = self.folder / "empty.pt"
        empty.write_bytes(b"")
        kind = "is neither a file of torch.save nor a safetensors file: it begins with the bytes \"not a checkpoint\""
        err, code = self.train("--resume", str(text))
        self.assertEqual(code, 5, err)
        self.assertIn(kind, err)
        self.train("training.epochs=1")
        good = self.run_dir / "checkpoints" / "last.pt"
        out, err, code = self.run_tool("checkpoint", "verify", text, good, empty)
        self.assertEqual(code, 5, err)
        lines = out.splitlines()
        self.assertEqual(len(lines), 3, out)
        self.assertIn(f"bad: {text}: {kind}", lines[0])
        self.assertIn(f"good: {good}, ", lines[1])
        self.assertIn(f"bad: {empty}: is empty", lines[2])
        before = good.read_bytes()
        link, copy, relative = self.folder / "link.pt", self.folder / "copy.pt", os.path.relpath(good, ROOT)
        link.symlink_to(good)
        copy.hardlink_to(good.resolve())
        for command in (("export", "--checkpoint", good, "--format", "state_dict"), ("checkpoint", "average", good)):
            for output in (good, link, copy, relative):
                with self.subTest(command[0], output=output):
                    out, err, code = self.run_tool(*command, "--output", output)
                    self.assertEqual(code, 2, err)
                    self.assertIn(f"--output {output}: this is the file {good}, which would be overwritten; give another name", err)
        self.assertEqual(good.read_bytes(), before)

    @plants("The configuration was changed so that the checkpoint does not fit")
    def test_changed_configuration(self, row):
        self.train(fault="0 training 24 kill")
        err, code = self.train("model={name: resnet20}", "seed=7")
        row.check(self, err, code)
        err = self.trained("optimizer.lr=0.001", "training.epochs=2")
        self.assertRegex(err, r"changed since the checkpoint: optimizer\.lr: 0\.001, not ")

    def test_a_restart_resumes(self):
        process = self.start("1 training 20 throw", launcher_args=["--max-restarts", "1"], settings=[*RUN[2:], "dataloader.global_batch_size=9"])
        err = self.end(process)
        self.assertEqual(process.returncode, 0, err)
        self.assertRegex(err, r"resumes from \S+/step_000000(14|18)\.pt: epoch [23], step")
        steps = [(row[0], row[1]) for row in results_of(self.run_dir)[1][1:]]
        self.assertEqual(steps, [("0", "9"), ("1", "18"), ("2", "27")])


    def run_tool(self, *args):
        run = subprocess.run([BINARY, *map(str, args)], cwd=ROOT, capture_output=True, text=True, timeout=120)
        return run.stdout, run.stderr, run.returncode

    def test_verify_resume(self):
        for launcher, args in (([], []), (["launch", "--nproc-per-node", "2", "--"], []),
                               (["launch", "--nproc-per-node", "2", "--"], ["loss={class_weights: auto}"])):
            out = self.ran(*launcher, "verify-resume", *RUN, *args, "--steps", "14").out
            self.assertRegex(out, r"^equal, bit for bit, in \d+ tensors: 14 steps without interruption, and 7 \+ 7 steps with a checkpoint between them$")

    def test_verify_resume_with_each_algorithm_of_convolutions(self):
        for convolution in ("direct", "winograd2", "winograd4"):
            with self.subTest(convolution):
                out = self.ran("verify-resume", *RUN, "model={name: resnet20, num_classes: 10}", "amp.enabled=false",
                               f"runtime.convolution={convolution}", "--steps", "6").out
                self.assertIn("equal, bit for bit", out)

    def test_verify_resume_reports_startup_errors_once(self):
        absent = self.folder / "absent.pt"
        for launcher in ([], ["launch", "--nproc-per-node", "2", "--"]):
            out, err, code = self.run_tool(*launcher, "verify-resume", *RUN, "--steps", "14", f"model.init_from={absent}")
            self.assertEqual((out, code), ("", 5), err)
            self.assertEqual(len(re.findall(rf"(?m)^error: {re.escape(str(absent))}: there is no such file", err)), 1, err)

    def test_verify_resume_without_its_last_checkpoint(self):
        env = {**os.environ, "LD_PRELOAD": FAULTS, "TRAINER_TEST_FAULT": "all save_half_written 0 full"}
        reason = r"cannot write \S+step_00000004\.pt: No space left on device; the training since the previous checkpoint is not saved"
        for launcher in (["launch", "--nproc-per-node", "1", "--"], ["launch", "--nproc-per-node", "2", "--"]):
            command = [BINARY, *launcher, "verify-resume", *map(str, RUN), "--steps", "4"]
            run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
            self.assertEqual((run.stdout, run.returncode), ("", 5), run.stderr)
            self.assertRegex(run.stderr, f"(?m)^error: {reason}$")
            survivors = re.findall(rf"(?m)^rank 1: error: rank 0 \(process \d+ on \S+\) failed at the end of the run: {reason}; this rank exits$", run.stderr)
            self.assertEqual(len(survivors), launcher.count("2"), run.stderr)

    def test_verify_resume_stops_on_request(self):
        command = [BINARY, "launch", "--nproc-per-node", "2", "--", "verify-resume", *map(str, RUN), "--steps", "1000000",
                   "training.epochs=1000000", "checkpoint.every_steps=1"]
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(self.folder)}, stdin=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.wait_for(lambda: any(self.folder.glob("trainer-verify-resume-*/straight/step_*.pt")))
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, err)
        self.assertEqual(list(self.folder.glob("trainer-verify-resume-*")), [])

    def test_checkpoint_commands(self):
        checkpoints = self.straight() / "checkpoints"
        first, last = sorted(checkpoints.glob("step_*.pt"))[-2:]
        out = self.ran("checkpoint", "info", last).out
        self.assertRegex(out, r"(?m)^step +30$")
        out, err, code = self.run_tool("checkpoint", "verify", first, last)
        self.assertEqual((code, out.count("good: ")), (0, 2), err)
        self.assertEqual(self.run_tool("checkpoint", "diff", last, checkpoints / "last.pt"), ("", "", 0))
        out, err, code = self.run_tool("checkpoint", "diff", first, last)
        self.assertEqual(code, 1, err)
        self.assertRegex(out, r"(?m)^model\.conv\.weight: 432 of 432 values, by up to ")
        average = self.folder / "average.pt"
        self.ran("checkpoint", "average", last, last, "--output", average)
        out, err, code = self.run_tool("checkpoint", "diff", average, last)
        self.assertEqual([line for line in out.splitlines() if line.startswith("model")], [], out)
        os.truncate(first, 1000)
        out, err, code = self.run_tool("checkpoint", "verify", first)
        self.assertEqual(code, 5)
        self.assertIn(f"bad: {first}: ", out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
