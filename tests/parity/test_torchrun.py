"""Runs under torchrun, which starts the program instead of a script. Takes half a minute."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from equal_runs import ENVIRONMENT, ROOT, SHORT_RUN, EqualRunsCase, with_fault  # noqa: E402
from ports import free_port  # noqa: E402


class TorchrunTest(EqualRunsCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-torchrun-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def torchrun(self, name, *options, settings=(), fault=""):
        self.run_dir = self.folder / name
        command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node=2", *options, *with_fault(fault), *SHORT_RUN,
                   "--run-dir", str(self.run_dir), *settings]
        return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)

    def test_static_and_c10d_rendezvous(self):
        for name, rendezvous in (("static", [f"--master-port={free_port()}"]),
                                 ("c10d", ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}", "--rdzv-id=test"])):
            with self.subTest(name):
                run = self.torchrun(name, *rendezvous)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertIn("rank 0 of 2 (local rank 0 of 2), from RANK and WORLD_SIZE", (self.run_dir / "train.log").read_text())
                self.assert_equal_runs(self.run_dir, self.launch_straight(self.folder, 2))

    def test_a_killed_rank_is_started_again(self):
        """A rank is killed two steps after a checkpoint. The restarted rank is not killed again, because fewer steps remain than the fault
        needs."""
        run = self.torchrun("restarted", f"--master-port={free_port()}", "--max-restarts=1", fault="1 training 16 kill")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, r"resumes from \S+/step_00000014\.pt: epoch 2, step 14")
        self.assert_equal_runs(self.run_dir, self.launch_straight(self.folder, 2))

    def check_root_cause(self, run, rank, exit_code, message):
        self.assertEqual(run.returncode, 1, run.stderr)
        root_cause = run.stderr.partition("Root Cause (first observed failure):")[2]
        self.assertNotIn("new message format", run.stderr)
        self.assertRegex(root_cause, rf"(?s)^\n\[\d\]:\n.*\n +rank +: {rank} \(local_rank: \d\)\n +exitcode +: {exit_code} .*\n"
                                     rf" +traceback +: {message}\n", run.stderr)

    def test_root_cause(self):
        for rank, action, exit_code, message in ((0, "throw", 1, "step 12: a planted exception"), (1, "throw", 1, "step 12: a planted exception"),
                                                 (0, "kill", -9, r"Signal 9 \(SIGKILL\) received by PID \d+")):
            with self.subTest(action, rank=rank):
                run = self.torchrun(f"{action}_{rank}", f"--master-port={free_port()}", fault=f"{rank} training 12 {action}")
                self.check_root_cause(run, rank, exit_code, message)

    def test_root_cause_of_a_usage_error(self):
        for name, rank, setting, message in (("key", "0", "training.epochs=none", "command line: training.epochs: expected an integer >= 1 or null, got none"),
                                             ("flag", "[01]", "--epochs=3", r"--epochs is not an option; keys of the experiment file are set as key=value, such as "
                                              r"training\.epochs=3 \(see `trainer train --help`\)")):
            with self.subTest(name):
                self.check_root_cause(self.torchrun(name, f"--master-port={free_port()}", settings=[setting]), rank, 2, message)


if __name__ == "__main__":
    unittest.main(verbosity=2)
