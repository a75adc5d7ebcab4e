"""Runs under a real Slurm of two nodes, with scripts/slurm/train.sbatch. Takes less than a minute."""

import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from equal_runs import BINARY, FAULTS, ROOT, SHORT_RUN, EqualRunsCase, needs  # noqa: E402
from slurm_rig import SlurmRig, missing_programs  # noqa: E402
from troubleshooting import plants  # noqa: E402

FILE = ROOT / "scripts" / "slurm" / "train.sbatch"
TWO_NODES = ["--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=1"]
ONE_NODE = ["--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=1"]


class SlurmTest(EqualRunsCase):
    @classmethod
    def setUpClass(cls):
        needs(missing_programs())
        folder = tempfile.TemporaryDirectory(prefix="trainer-slurm-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "slurm").mkdir()
        cls.rig = SlurmRig(cls.folder / "slurm")
        cls.addClassCleanup(cls.rig.stop)
        cls.rig.start()

    def submit(self, name, options, *settings, trainer=BINARY, fault="", file=FILE):
        """Submits a job with train.sbatch."""
        self.run_dir = self.folder / name
        self.log = self.folder / f"{name}.log"
        return self.rig.submit(*options, f"--output={self.log}", file, *SHORT_RUN, "--run-dir", self.run_dir, *settings, cwd=ROOT,
                               TRAINER=f"env LD_PRELOAD={FAULTS} {trainer}" if fault else str(trainer), TRAINER_TEST_FAULT=fault)

    def output(self):
        return self.log.read_text() if self.log.exists() else ""

    def wait_for_text(self, text, job):
        self.rig.wait_for(lambda: text in self.output() or self.rig.job(job, "JobState") not in ("PENDING", "RUNNING"), self.output)
        self.assertIn(text, self.output())

    def test_two_nodes_are_one_run(self):
        job = self.submit("two_nodes", TWO_NODES)
        self.assertEqual(self.rig.end(job), ("COMPLETED", 0), self.output())
        self.assertIn("rank 0 of 4 (local rank 0 of 2), from SLURM_PROCID and SLURM_STEP_NUM_TASKS; MASTER_ADDR=127.0.0.1 is the first of "
                      "SLURM_STEP_NODELIST; MASTER_PORT=", (self.run_dir / "train.log").read_text())
        self.assert_equal_runs(self.run_dir, self.launch_straight(self.folder, 4))

    def test_the_time_limit_signal_requeues_the_job(self):
        """The test sends the signal itself, because Slurm checks time limits only twice a minute."""
        self.assertIn("#SBATCH --signal=USR1@", FILE.read_text())
        job = self.submit("requeued", ONE_NODE, fault="0 training 12 wait")
        self.wait_for_text("epoch 1/3  step 10", job)
        time.sleep(0.5)
        self.rig.run("scancel", "--signal=USR1", job)
        # Without a start time, Slurm would start the job again after two minutes. Slurm ignores a start time in the second in which the job
        # has ended.
        self.rig.wait_for(lambda: self.rig.job(job, "Restarts") == "1" and self.rig.job(job, "JobState") == "PENDING", self.output)
        self.rig.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")
        self.assertEqual(self.rig.end(job), ("COMPLETED", 0), self.output())
        self.assertIn("stopped", self.output())
        self.assertIn("resumes from", self.output())
        self.assert_equal_runs(self.run_dir, self.launch_straight(self.folder, 2))

    def test_a_job_is_not_requeued_for_ever(self):
        file = self.folder / "never_again.sbatch"
        file.write_text(FILE.read_text().replace("max_requeues=100", "max_requeues=0"))
        job = self.submit("never_again", ["--gpus-per-node=0", "--ntasks-per-node=1", "--cpus-per-task=1"], fault="0 training 12 wait", file=file)
        self.wait_for_text("epoch 1/3  step 10", job)
        time.sleep(0.5)
        self.rig.run("scancel", "--signal=USR1", job)
        self.assertEqual(self.rig.end(job), ("FAILED", 75), self.output())
        self.assertIn("the job was requeued 0 times (max_requeues), and is not requeued again; submit it again to continue", self.output())

    def test_a_cancelled_job_is_not_requeued(self):
        job = self.submit("cancelled", ONE_NODE, "training.epochs=100000")
        self.wait_for_text("epoch 1/", job)
        self.rig.run("scancel", job)
        self.assertEqual(self.rig.end(job)[0], "CANCELLED", self.output())
        self.assertEqual(self.rig.job(job, "Restarts"), "0")

    def test_a_failing_rank_ends_the_job(self):
        for action, code, words in (("throw", 4, "rank 3: error: step 12: a planted exception"), ("kill", 137, "task 3: Killed")):
            with self.subTest(action):
                job = self.submit(action, TWO_NODES, fault=f"3 training 12 {action}")
                self.wait_for_text(words, job)
                begin = time.monotonic()
                self.assertEqual(self.rig.end(job), ("FAILED", code), self.output())
                self.assertLess(time.monotonic() - begin, 10)
                self.assertRegex(self.output(), r"error: rank 3 \(process \d+ on \S+\) (failed|exited without reporting an error) in step 12; .*this rank exits")

    def test_a_missing_rank_ends_the_job(self):
        """A rank fails before the ranks meet. If Slurm did not end the job, the other ranks would wait ten minutes for that rank."""
        trainer = self.folder / "all_but_3"
        # Slurm ends the other ranks by a signal, which they catch only after they have started. The exit code of the job is the highest of
        # all tasks.
        others_wait = f"grep -q '3 of 4 ranks have joined; waiting for rank 3' {self.folder}/all_but_3.log"
        trainer.write_text(f'#!/bin/sh\ntest "$SLURM_PROCID" != 3 && exec {BINARY} "$@"\nuntil {others_wait}; do sleep 0.1; done\nexit 1\n')
        trainer.chmod(0o755)
        job = self.submit("all_but_3", TWO_NODES, trainer=trainer)
        self.wait_for_text("task 3: Exited with exit code 1", job)
        self.assertIn("3 of 4 ranks have joined; waiting for rank 3 on 127.0.0.2", self.output())
        begin = time.monotonic()
        self.assertEqual(self.rig.end(job), ("FAILED", 4), self.output())
        self.assertLess(time.monotonic() - begin, 10)

    @plants("Slurm gives fewer GPUs than tasks")
    def test_tasks_and_gpus(self, row):
        options = ["--ntasks-per-node=3", "--gpus-per-node=2", "--cpus-per-task=1"]
        job = self.submit("gpus", options, "runtime.device=auto", "dataloader.global_batch_size=9")
        code = self.rig.end(job)[1]
        row.check(self, self.output(), code)
        self.assertEqual(self.output().count("Slurm started 3 tasks"), 1, self.output())
        run = self.srun("--gpus-per-node=2", "runtime.device=auto", run_dir="idle")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("warning: Slurm allocated 2 GPUs on this node (SLURM_GPUS_ON_NODE), but 1 of them stays idle", run.stderr)

    def test_a_taken_computed_port(self):
        """The test listens on the port that is computed for the first step of the next job."""
        job = int(self.srun("--ntasks=1", "training.epochs=1", run_dir="before").job) + 1
        port = 20000 + 61 * job % 12768
        with socket.create_server(("127.0.0.1", port)):
            run = self.srun("--ntasks=2", "distributed.timeout_seconds=2", run_dir="taken")
        self.assertEqual(run.returncode, 4, run.stderr)
        self.assertIn(f"rank 0 cannot listen on port {port} (computed from SLURM_JOB_ID={job} and SLURM_STEP_ID=0), because another program uses it",
                      run.stderr)

    def srun(self, option, *settings, run_dir):
        """Runs a job on one node; the result's `job` is its number."""
        command = ["srun", "-v", "--nodes=1", option, BINARY, *SHORT_RUN, "--run-dir", str(self.folder / run_dir), *settings]
        run = subprocess.run(command, cwd=ROOT, env=self.rig.environment, capture_output=True, text=True, timeout=60)
        run.job = run.stderr.partition("jobid ")[2].partition(":")[0]
        return run


if __name__ == "__main__":
    unittest.main(verbosity=2)
