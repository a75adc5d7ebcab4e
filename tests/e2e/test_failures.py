"""Failures of a rank: which rank is reported, how the others exit, and what the launcher returns."""

import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import side_by_side  # noqa: E402
from launches import HANG_SECONDS, NUM_RANKS, LaunchCase, ranks_of, write_safetensors  # noqa: E402
from troubleshooting import plants  # noqa: E402

TRAINING = ("training 3", "step 3")
VALIDATION = ("validation 5", "validation")
PHASES = (TRAINING, VALIDATION)
ALL_PHASES = (("start 0", "start-up"), *PHASES, ("checkpoint 1", "checkpoint"))
SURVIVORS = NUM_RANKS - 1
ONE_EPOCH = ["training.epochs=1", "dataset={name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 24, num_validation: 6}",
             "dataset.train_transforms=[]", "dataset.validation_transforms=[]", "dataloader.global_batch_size=6", "logging.every_steps=1"]


class FailuresTest(LaunchCase):
    def plant(self, rank, phase, action, **options):
        """Launches ranks of which one fails at this point; returns the ended process and its stderr."""
        self.run_dir = self.folder / f"{action}_{rank}_{phase.replace(' ', '_')}"
        err = self.end(process := self.start(f"{rank} {phase} {action}", **options))
        return process, err

    def check(self, row, process, err, rank, where):
        """Checks the row of docs/troubleshooting.md, and that all other ranks report the failure in the same words."""
        others = [code for number, code in enumerate(self.exit_codes()) if number != rank]
        self.assertEqual(len(others), SURVIVORS, err)
        row.check(self, err, process.returncode, others, RANK=rank, PHASE=where, SIZE=NUM_RANKS)
        self.assert_named(err, SURVIVORS, rf"^rank {rank} \(process \d+ on .*\) .* (in|seen in) {where}(;|$)")
        if process.returncode == 4:
            self.assertRegex(err.splitlines()[-1], rf"^error: rank {rank} \(")

    @plants("A rank is killed")
    def test_killed(self, row):
        for rank, (phase, where) in itertools.product(range(NUM_RANKS), ALL_PHASES):
            with self.subTest(rank=rank, phase=phase):
                self.check(row, *self.plant(rank, phase, "kill"), rank, where)

    @plants("A rank is stopped, or its host or network is lost")
    def test_stopped(self, row):
        # Only one rank in each phase, because the others wait for hang_seconds each time; after that, they act as if a rank was killed.
        for rank, (phase, where) in zip((1, 2, 0, 0), ALL_PHASES, strict=True):
            with self.subTest(rank=rank, phase=phase):
                self.check(row, *self.plant(rank, phase, "stop"), rank, where)

    def signalled_at_the_first_line(self, row, number):
        for rank in range(NUM_RANKS):
            with self.subTest(rank=rank):
                self.run_dir = self.folder / f"first_line_{rank}"
                process = self.start()
                first = process.stderr.readline()
                begin = time.monotonic()
                os.kill(ranks_of(process)[rank], number)
                err = first + self.end(process)
                self.assertLess(time.monotonic() - begin, HANG_SECONDS + 5)
                self.check(row, process, err, rank, "start-up")

    @plants("A rank is killed")
    def test_killed_at_the_first_line(self, row):
        self.signalled_at_the_first_line(row, signal.SIGKILL)

    @plants("A rank is stopped, or its host or network is lost")
    def test_stopped_at_the_first_line(self, row):
        self.signalled_at_the_first_line(row, signal.SIGSTOP)

    @plants("An exception on one rank")
    def test_exception(self, row):
        for rank, (phase, where) in enumerate(PHASES):
            with self.subTest(phase=phase):
                process, err = self.plant(rank, phase, "throw")
                self.assertEqual(err.count("a planted exception"), 2, err)  # from the rank, and in the launcher's report
                self.check(row, process, err, rank, where)

    @plants("A rank hangs")
    def test_hang(self, row):
        for rank, (phase, where) in enumerate(PHASES):
            with self.subTest(phase=phase):
                process, err = self.plant(rank, phase, "hang")
                row.check(self, err, process.returncode, self.exit_codes(), RANK=rank, PHASE=where)
                self.assert_named(err, NUM_RANKS, rf"^rank {rank} \(process \d+ on .*\) is stuck: no progress for .* in {where}; ")

    @plants("A file system does not answer")
    def test_blocked_file(self, row):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                process, err = self.plant(rank, "start 0", "hang")
                row.check(self, err, process.returncode, self.exit_codes(), RANK=rank)
                self.assert_named(err, NUM_RANKS, rf"^rank {rank} \(process \d+ on .*\) is stuck: no progress for .* in start-up, reading \S+\.bin; ")

    @plants("A rank crashes: segmentation fault", "A rank aborts")
    def test_crash(self, segmentation_fault, aborted):
        for action, row in (("segv", segmentation_fault), ("abort", aborted)):
            for rank, (phase, where) in enumerate(PHASES):
                with self.subTest(action, phase=phase):
                    process, err = self.plant(rank, phase, action)
                    self.check(row, process, err, rank, where)
                    left = (self.run_dir / ("train.log" if rank == 0 else f"rank_{rank}.log")).read_text()
                    self.assertIn(f"crash: rank {rank} of {NUM_RANKS}, in {where}: ", left)
                    self.assertIn("stack", left)

    @plants("A rank ends by itself")
    def test_exit(self, row):
        for rank, (phase, where) in enumerate(PHASES):
            with self.subTest(phase=phase):
                process, err = self.plant(rank, phase, "exit")
                self.check(row, process, err, rank, where)

    @plants("Out of memory in training", "Out of memory in validation")
    def test_out_of_memory(self, *rows):
        for rank, row, (phase, where) in zip(range(NUM_RANKS), rows, PHASES):
            with self.subTest(phase=phase):
                self.check(row, *self.plant(rank, phase, "no_memory"), rank, where)

    @plants("Out of memory in training")
    def test_memory_limit(self, row):
        """The allocation of the first step's gradients fails."""
        self.check(row, *self.plant(1, "training 0", "limit_memory"), 1, "step 0")

    @plants("A step is not finite")
    def test_not_a_number(self, row):
        process, err = self.plant(1, "training 3", "nan")
        row.check(self, err, process.returncode, self.exit_codes(), STEP=3, RANK=1)
        self.assertEqual(len(re.findall(r"^(?:rank \d+: )?error: step", err, re.MULTILINE)), 1, err)  # all ranks detect it, one reports it
        self.assertIn("which was finite when the step was repeated", err)
        self.assertEqual([path.name for path in (self.run_dir / "non_finite").iterdir()], ["step_3"])

    @plants("A step is not finite, under `training.on_non_finite: skip`")
    def test_skipped_not_a_number(self, row):
        self.run_dir = self.folder / "skip"
        process = self.start("1 training 3 nan", settings=["training.on_non_finite=skip"])
        output = self.wait_for_training(process)
        self.wait_for(lambda: self.steps_done() > 20)
        row.check(self, output + self.stop_and_end(process), STEP=3, RANK=1)

    @plants("A data file cannot be read")
    def test_unreadable_data(self, row):
        process, err = self.plant(2, "start 0", "unreadable")
        row.check(self, err, process.returncode, self.exit_codes(), RANK=2)
        self.assertFalse((self.run_dir / "metrics.jsonl").exists())

    @plants("A data file is shortened, or its disk fails, while it is in use")
    def test_shortened_data(self, row):
        process, err = self.plant(1, "training 3", "lose_data")
        others = [code for number, code in enumerate(self.exit_codes()) if number != 1]
        row.check(self, err, process.returncode, others, RANK=1, FILE="/memfd:lost.bin (deleted)")
        self.assert_named(err, SURVIVORS, r"^rank 1 \(process \d+ on .*\) was killed by signal 7 \(Bus error\) in ")

    @plants("The file of `model.init_from` does not fit")
    def test_weights_that_do_not_fit(self, row):
        weights = self.folder / "weights.safetensors"
        write_safetensors(weights, {"conv.weight": ([16, 3, 3, 3], [1] * 432), "head.bias": ([2], [1, 2])})
        err = self.end(process := self.start(settings=[f"model.init_from={weights}"]))
        missing = "missing conv.bias, fc.weight, fc.bias; unexpected head.bias"
        row.check(self, err, process.returncode, self.exit_codes(), FILE=weights, TEXT=missing)

    @plants("A name in `model.freeze` or `optimizer.groups` is not in the network")
    def test_layers_that_the_network_does_not_have(self, row):
        err = self.end(process := self.start(settings=["model.freeze=[convv]", "optimizer.groups=[{parameters: [fc, fc.wieght]}]"]))
        row.check(self, err, process.returncode, self.exit_codes())
        self.assertIn('model.freeze[0]: the network demo_conv has neither a layer nor a parameter "convv"; did you mean "conv"?', err)
        self.assertIn('optimizer.groups[0].parameters[1]: the network demo_conv has neither a layer nor a parameter "fc.wieght"; '
                      'did you mean "fc.weight"?', err)

    @plants("The disk of the run directory is full")
    def test_full_disk(self, row):
        # A small disk in a mount namespace of these processes. Its files are copied when the processes have ended.
        disk, kept = self.folder / "disk", self.folder / "kept"
        disk.mkdir()
        script = 'disk=$0; mount -t tmpfs -o size=200k none "$disk" || exit 99; "$@"; code=$?; cp -r "$disk" "$disk/../kept"; exit $code'
        on_small_disk = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(disk)]
        if subprocess.run([*on_small_disk, "true"], capture_output=True).returncode != 0:
            self.skipTest("a file system cannot be mounted here")
        shutil.rmtree(kept)
        self.run_dir = disk / "run"
        # Every step writes a few hundred bytes, so the disk is soon full.
        err = self.end(process := self.start(settings=["logging.every_steps=1", "dataloader.global_batch_size=6"], prefix=on_small_disk))
        row.check(self, err, process.returncode, self.exit_codes()[1:])
        self.assert_named(err, SURVIVORS, r"^rank 0 \(process \d+ on .*\) failed in (loading of )?step \d+; see its own message for the reason; ")
        lines = [json.loads(line) for line in (kept / "run" / "metrics.jsonl").read_text().splitlines()]
        self.assertGreater(len(lines), 100)

    @plants("The last checkpoint of several ranks cannot be written")
    def test_last_checkpoint(self, row):
        for what, fault in (("full", "0 save_half_written 0 full"), ("removed", "0 training 1 wait")):
            for num_ranks in (2, NUM_RANKS):
                with self.subTest(what, num_ranks=num_ranks):
                    self.run_dir = self.folder / f"{what}_{num_ranks}"
                    process = self.start(fault, num_ranks=num_ranks, settings=[*ONE_EPOCH, "checkpoint={every_steps: null}"])
                    output = ""
                    if what == "removed":
                        output = self.wait_for_training(process, sign="training")
                        shutil.rmtree(self.run_dir)
                    err = output + self.end(process)
                    row.check(self, err, process.returncode, self.exit_codes()[1:])
                    self.assert_named(err, num_ranks - 1, r"^rank 0 \(process \d+ on .*\) failed at the end of the run: cannot write \S+: \S.*; "
                                      "the training since the previous checkpoint is not saved; this rank exits$")

    @plants("A rank needs too long for the start-up")
    def test_late_in_the_start_up(self, row):
        process, err = self.plant(1, "start 0", "hang", settings=["distributed.timeout_seconds=2", "distributed.hang_seconds=60"])
        row.check(self, err, process.returncode, self.exit_codes(), RANK=1)
        self.assert_named(err, NUM_RANKS, r"^rank 1 \(process \d+ on .*\) has not finished its part of the start-up within 2\.0s; ")

    def test_restart(self):
        err = self.end(process := self.start("1 training 3 kill", launcher_args=("--max-restarts", "1")))
        self.assertEqual(process.returncode, 137, err)
        self.assertEqual(err.count("restarting all processes: restart 1 of 1"), 1, err)
        self.assertEqual(len(re.findall(r"(?m)^resumes from \S+/step_00000003\.pt: epoch 2, step 3$", err)), 1, err)


if __name__ == "__main__":
    side_by_side.main()
