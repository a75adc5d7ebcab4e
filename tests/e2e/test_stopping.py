"""Signals and other external events that end a launch or do not end it; no launch leaves processes or files behind."""

import fcntl
import json
import os
import pathlib
import pty
import signal
import sys
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import side_by_side  # noqa: E402
from launches import NUM_RANKS, LaunchCase, processes_of, ranks_of, state_of  # noqa: E402
from troubleshooting import plants  # noqa: E402

# The number of launches in the last test.
NUM_LAUNCHES = int(os.environ.get("TRAINER_TEST_LAUNCHES", "10"))
SHORT = ["training.epochs=1", "dataset={name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 6, num_validation: 6}",
         "dataset.train_transforms=[]", "dataset.validation_transforms=[]", "dataloader.global_batch_size=6"]


class StoppingTest(LaunchCase):
    def assert_stopped(self, row, process, err):
        row.check(self, err, process.returncode, self.exit_codes())
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["reason"], "stopped")

    @plants("Ctrl-C, or another request to stop")
    def test_requests_to_stop(self, row):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            with self.subTest(number.name):
                self.run_dir = self.folder / number.name
                process = self.start()
                output = self.wait_for_training(process)
                process.send_signal(number)
                err = self.end(process)
                self.assertEqual(err.count("stopped"), 1, err)
                self.assert_stopped(row, process, output + err)

    @plants("A stop request while a file system does not answer")
    def test_stop_requests_while_a_file_is_blocked(self, row):
        process = self.start("1 start 0 hang", settings=["distributed.hang_seconds=300"])
        output = self.wait_for_training(process, sign="quickstart")
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        row.check(self, output + self.end(process), process.returncode, self.exit_codes())

    @plants("Ctrl-C twice", "SIGTERM twice")
    def test_a_second_request_kills_hanging_ranks(self, *rows):
        for number, row in zip((signal.SIGINT, signal.SIGTERM), rows):
            with self.subTest(number.name):
                self.run_dir = self.folder / number.name
                process = self.start("2 training 0 hang", settings=["distributed.hang_seconds=300"])
                output = self.wait_for_training(process, sign="training")
                time.sleep(1)
                process.send_signal(number)
                time.sleep(1.5)
                process.send_signal(number)
                row.check(self, output + self.end(process), process.returncode, self.exit_codes())

    def test_a_request_continues_a_suspended_rank(self):
        process = self.start(settings=["distributed.hang_seconds=300"])
        self.wait_for_training(process)
        os.kill(ranks_of(process)[1], signal.SIGSTOP)
        self.stop_and_end(process)

    @plants("The terminal is closed")
    def test_closed_terminal(self, row):
        terminal, inside = pty.openpty()
        process = self.start(stdin=inside, stdout=inside, stderr=inside, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY))
        os.close(inside)
        self.wait_for(lambda: self.steps_done() > 0)
        os.close(terminal)
        process.wait(60)
        self.assert_nothing_left(process, "")
        self.assert_stopped(row, process, (self.run_dir / "train.log").read_text())

    @plants("The reader of the output exits")
    def test_closed_output_pipe(self, row):
        reader, writer = os.pipe()
        process = self.start(stdout=writer, stderr=writer)
        os.close(writer)
        self.wait_for(lambda: self.steps_done() > 0)
        os.close(reader)
        before = self.steps_done()
        self.wait_for(lambda: self.steps_done() > before + 20)
        self.stop_and_end(process)
        row.check(self, (self.run_dir / "train.log").read_text())

    @plants("A rank is stopped, and continued before `distributed.hang_seconds`")
    def test_stopped_for_less_than_the_limit(self, row):
        process = self.start("1 training 3 stop")
        output = self.wait_for_training(process)
        self.wait_for(lambda: any(state_of(pid) == "T" for pid in processes_of(process.pid)))
        time.sleep(1)
        before = self.steps_done()
        os.kill(next(pid for pid in processes_of(process.pid) if state_of(pid) == "T"), signal.SIGCONT)
        self.wait_for(lambda: self.steps_done() > before + 20)
        row.check(self, output + self.stop_and_end(process), RANK=1)

    @plants("The launcher is killed", "A run was killed in the same run directory")
    def test_ranks_end_with_a_killed_launcher(self, killed, held):
        process = self.start()
        output = self.wait_for_training(process)
        rank_0 = ranks_of(process)[0]
        process.kill()
        killed.check(self, output + self.end(process), 128 - process.returncode)
        process = self.start()
        output = self.wait_for_training(process)
        held.check(self, output + self.stop_and_end(process), PROCESS=rank_0, FILE=self.run_dir)

    def test_launches_leave_nothing_behind(self):
        temporary = self.folder / "temporary"
        temporary.mkdir()
        for number in range(NUM_LAUNCHES):
            self.run_dir = self.folder / f"run_{number}"
            err = self.end(process := self.start(settings=SHORT, variables={"TMPDIR": str(temporary)}))
            self.assertEqual((process.returncode, self.exit_codes()), (0, [0] * NUM_RANKS), err)
            self.assertEqual(os.listdir(temporary), [])


if __name__ == "__main__":
    side_by_side.main()
