"""What happens when a rank fails: who is named, what the others do, and what the launcher returns. TRAINER_BINARY names the program,
TRAINER_FAULTS the library that plants faults."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["TRAINER_BINARY"]
FAULTS = os.environ["TRAINER_FAULTS"]
HANG_SECONDS = 4
CONFIG = ROOT / "configs" / "quickstart.yaml"
# A step of a fraction of a second, validation of many batches after the second one, and no end.
SETTINGS = ["model={name: demo_conv, num_classes: 10}", "training.epochs=100000", "dataloader={batch_size: null, global_batch_size: 600}",
            "validation.batch_size=10", f"distributed.hang_seconds={HANG_SECONDS}"]


def processes_of(session):
    """Those of a session that still live."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


class FailuresTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-failures-")
        self.addCleanup(folder.cleanup)
        self.run_dir = pathlib.Path(folder.name) / "run"

    def start(self, fault="", num_ranks=3, launcher_args=(), settings=()):
        env = {**os.environ, "LD_PRELOAD": FAULTS, "TRAINER_TEST_FAULT": fault, "OMP_NUM_THREADS": "1"}
        command = [BINARY, "launch", "--nproc-per-node", str(num_ranks), *launcher_args, "--config", str(CONFIG), "--run-dir",
                   str(self.run_dir), *SETTINGS, *settings]
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def end(self, process, seconds=60):
        """What it said, once it has ended with all that it had started."""
        _, err = process.communicate(timeout=seconds)
        deadline = time.monotonic() + 5
        while processes_of(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(processes_of(process.pid), [], err)
        return err

    def assert_named(self, err, survivors, pattern):
        """Each survivor names the same rank in the same words."""
        lines = [line for line in err.splitlines() if line.endswith("; this rank ends")]
        said = {re.sub(r"^(rank \d+: )?error: ", "", line) for line in lines}
        self.assertEqual(len(lines), survivors, err)
        self.assertEqual(len(said), 1, err)
        self.assertRegex(said.pop(), pattern)

    def each_rank_and_phase(self, action):
        """Plants the action on each rank in training and in validation: the rank, where it was, the launcher's status, what was said."""
        for rank in range(3):
            for phase, where in (("training 3", "step 3"), ("validation 5", "validation")):
                self.run_dir = self.run_dir.with_name(f"{action}_{rank}_{phase.split()[0]}")
                err = self.end(process := self.start(f"{rank} {phase} {action}"))
                yield rank, where, process.returncode, err

    def test_killed(self):
        for rank, where, status, err in self.each_rank_and_phase("kill"):
            self.assertEqual(status, 137, err)
            self.assertRegex(err, rf"error: rank {rank} \(process \d+\) was killed by signal 9 \(Killed\)")
            self.assert_named(err, 2, rf"^rank {rank} \(process \d+ on .*\) was killed by signal 9 \(Killed\) in {where}; ")

    def test_stopped(self):
        for rank, where, status, err in self.each_rank_and_phase("stop"):
            self.assertEqual(status, 4, err)
            self.assert_named(err, 2, rf"^rank {rank} \(process \d+ on .*\) has not answered for .*, last seen in {where}; ")

    def test_exception(self):
        for phase, where in (("training 3", "step 3"), ("validation 5", "validation")):
            with self.subTest(phase=phase):
                self.run_dir = self.run_dir.with_name(f"exception_{phase.split()[0]}")
                err = self.end(process := self.start(f"1 {phase} throw"))
                self.assertEqual(process.returncode, 1, err)
                self.assertEqual(err.count("a planted exception"), 2, err)  # as it happens, and with the launcher's report
                self.assert_named(err, 2, rf"^rank 1 \(process \d+ on .*\) failed in {where}; its own message says why; ")

    def test_hang(self):
        err = self.end(process := self.start("2 training 4 hang"))
        self.assertEqual(process.returncode, 4, err)
        self.assert_named(err, 3, r"^rank 2 \(process \d+ on .*\) hangs: .* in step 4 without an end; ")
        self.assertIn("threads of this rank, in step 4", err)

    def test_crash(self):
        for action, number, text in (("segv", 11, "Segmentation fault"), ("abort", 6, "Aborted")):
            with self.subTest(action):
                self.run_dir = self.run_dir.with_name(action)
                err = self.end(process := self.start(f"1 training 3 {action}"))
                self.assertEqual(process.returncode, 128 + number, err)
                self.assertIn(f"crash: rank 1 of 3, in step 3: {text}", err)
                left = (self.run_dir / "rank_1.log").read_text()
                self.assertIn(f"crash: rank 1 of 3, in step 3: {text}", left)
                self.assertIn("stack", left)

    def test_exit(self):
        err = self.end(process := self.start("1 training 3 exit"))
        self.assertEqual(process.returncode, 3, err)
        self.assert_named(err, 2, r"^rank 1 \(process \d+ on .*\) ended with exit code 3 in step 3; ")

    def test_no_memory(self):
        err = self.end(process := self.start("1 training 3 no_memory"))
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("rank 1: error: out of memory in step 3 at batch_size 200; lower dataloader.batch_size", err)
        self.assert_named(err, 2, r"^rank 1 \(process \d+ on .*\) failed in step 3; its own message says why; ")

    def trains(self, process, sign="epoch"):
        """Waits until it has begun to."""
        for line in process.stderr:
            if line.startswith(sign):
                return
        self.fail("it does not train")

    def steps_done(self):
        lines = (self.run_dir / "metrics.jsonl").read_text().splitlines()
        return json.loads(lines[-1])["step"]

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it never came")
            time.sleep(0.05)

    def test_stopped_for_less_than_the_limit(self):
        process = self.start("1 training 3 stop")
        self.trains(process)
        self.wait_for(lambda: any(state_of(pid) == "T" for pid in processes_of(process.pid)))
        time.sleep(1)
        before = self.steps_done()
        os.kill(next(pid for pid in processes_of(process.pid) if state_of(pid) == "T"), signal.SIGCONT)
        self.wait_for(lambda: self.steps_done() > before + 20)
        process.terminate()
        self.assertEqual((self.end(process), process.returncode)[1], 75)

    def test_requests_to_stop(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            with self.subTest(number.name):
                self.run_dir = self.run_dir.with_name(number.name)
                process = self.start()
                self.trains(process)
                process.send_signal(number)
                self.assertEqual((self.end(process), process.returncode)[1], 75)

    def test_a_second_interrupt_ends_what_hangs(self):
        process = self.start("2 training 0 hang", settings=["distributed.hang_seconds=300"])
        self.trains(process, sign="training")
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual((self.end(process), process.returncode)[1], 130)

    def test_nobody_listens(self):
        process = self.start()
        self.trains(process)
        process.stderr.close()
        before = self.steps_done()
        self.wait_for(lambda: self.steps_done() > before + 20)
        process.terminate()
        self.assertEqual(process.wait(60), 75)
        self.assertEqual(processes_of(process.pid), [])

    def test_restart(self):
        err = self.end(process := self.start("1 training 3 kill", launcher_args=("--max-restarts", "1")))
        self.assertEqual(process.returncode, 137, err)
        self.assertEqual(err.count("all processes are started again: restart 1 of 1"), 1, err)
        self.assertEqual(err.count("begins again from its first step"), 1, err)

    def test_killed_in_start_up(self):
        for number, code in ((signal.SIGKILL, 137), (signal.SIGSTOP, 4)):
            for rank in range(3):
                with self.subTest(number=number, rank=rank):
                    self.run_dir = self.run_dir.with_name(f"start_{number.name}_{rank}")
                    process = self.start()
                    first = process.stderr.readline()
                    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                    os.kill(sorted(map(int, children))[rank], number)
                    err = first + self.end(process)
                    self.assertEqual(process.returncode, code, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
