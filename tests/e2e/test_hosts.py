"""Runs on two hosts with two ranks each, with failures of the network or a host."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from equal_runs import tensors  # noqa: E402
from hosts import ADDRESSES, Hosts  # noqa: E402
from launches import BINARY, CONFIG, HANG_SECONDS, ROOT, SETTINGS, LaunchCase, processes_of  # noqa: E402
from troubleshooting import plants  # noqa: E402

PER_NODE = 2
HOSTS = tuple(ADDRESSES)
# A run with three steps in each epoch, which is long enough to be interrupted.
FINITE = ["optimizer.lr=0.002", "training.epochs=20", "validation.every_epochs=10", "checkpoint.keep_last=1"]


class HostsTest(LaunchCase):
    straight_tensors = None

    def setUp(self):
        super().setUp()
        self.hosts = Hosts(self)

    def start_on(self, host, *launcher_args, settings=FINITE):
        number = HOSTS.index(host)
        nodes = ["--nnodes", str(len(HOSTS)), "--node-rank", str(number), "--master-addr", ADDRESSES[HOSTS[0]]]
        return self.start(launcher_args=[*nodes, *launcher_args], settings=settings, prefix=self.hosts.on(host), num_ranks=PER_NODE)

    def start_both(self, *launcher_args, **options):
        return [self.start_on(host, *launcher_args, **options) for host in HOSTS]

    def end_both(self, processes, code, seconds=60):
        """Waits until both launches have ended with this exit code; returns the stderr of each."""
        outputs = [process.communicate(timeout=seconds)[1] for process in processes]
        for process, err in zip(processes, outputs):
            self.assertEqual(process.returncode, code, err)
            self.assert_nothing_left(process, err)
        return outputs

    def straight(self):
        """The tensors of an uninterrupted run, which is done only once."""
        if not HostsTest.straight_tensors:
            self.run_dir = self.folder / "straight"
            first, _ = self.end_both(self.start_both(), 0)
            self.assertIn("world_size 4", first)
            HostsTest.straight_tensors = tensors(self.run_dir)
            self.run_dir = self.folder / "run"
        return HostsTest.straight_tensors

    def test_a_slow_link_and_packet_loss(self):
        straight = self.straight()
        for name, change in (("slow", lambda: self.hosts.slow_down("node-b", "50mbit")), ("loses", lambda: self.hosts.lose("node-b", 0.01))):
            with self.subTest(name):
                change()
                self.run_dir = self.folder / name
                self.end_both(self.start_both(), 0)
                self.assertEqual(tensors(self.run_dir), straight)

    def test_an_interrupted_link(self):
        straight = self.straight()
        processes = self.start_both()
        self.wait_for(lambda: self.steps_done() > 10)
        self.hosts.unplug("node-b")
        time.sleep(HANG_SECONDS - 1)
        self.assertLess(self.steps_done(), 50)
        self.hosts.plug("node-b")
        self.end_both(processes, 0)
        self.assertEqual(tensors(self.run_dir), straight)

    @plants("A rank is stopped, or its host or network is lost")
    def test_a_cut_link(self, row):
        processes = self.start_both(settings=[])
        self.wait_for(lambda: self.steps_done() > 5)
        begin = time.monotonic()
        self.hosts.unplug("node-b")
        for host, process, err in zip(HOSTS, processes, self.end_both(processes, 4)):
            lost = next(other for other in HOSTS if other != host)
            row.check(self, err, process.returncode)
            if lost == HOSTS[0]:
                # The store, through which ranks agree, is lost too, so the times that ranks report may differ by a heartbeat.
                err = re.sub(r"last seen in [^;]+", "last seen", err)
            self.assert_named(err, PER_NODE, rf"^rank \d \(process \d+ on {lost}\) has not answered")
            self.assertRegex(err.splitlines()[-1], rf"^error: rank \d \(process \d+ on {lost}\) has not answered")
        self.assertLess(time.monotonic() - begin, HANG_SECONDS + 10)
        self.assertEqual(self.exit_codes(), [4] * PER_NODE * len(HOSTS))

    @plants("A host is late")
    def test_a_lost_host_is_restarted(self, row):
        straight = self.straight()
        first, other = self.start_both("--max-restarts", "1")
        self.wait_for(lambda: self.steps_done() > 10)
        for pid in processes_of(other.pid):
            os.kill(pid, signal.SIGKILL)
        other.communicate()
        output = ""
        for line in first.stderr:
            output += line
            if "nodes have joined" in line:
                break
        row.check(self, output, RANK=2, NUMBER=1)
        self.assertRegex(output, r"rank [23] \(process \d+ on node-b\)")
        output = self.end_both([first, self.start_on("node-b")], 0)[0]
        self.assertRegex(output, r"resumes from \S+/step_\d+\.pt")
        self.assertEqual(tensors(self.run_dir), straight)

    def test_a_name_server_that_does_not_answer(self):
        """Neither ranks under the launcher nor ranks that are started by hand wait for the ten seconds after which a look-up fails."""
        for host in HOSTS:
            self.hosts.silence_name_server(self, host)
        short = ["training.epochs=1"]

        starts = {
            "one_host": lambda: [self.start(settings=short, prefix=self.hosts.on(HOSTS[0]), num_ranks=PER_NODE)],
            "two_hosts": lambda: self.start_both(settings=short),
            "by_hand": lambda: [self.start_by_hand(host, rank, short) for rank, host in enumerate(HOSTS)],
        }
        for name, start in starts.items():
            self.run_dir = self.folder / name
            begin = time.monotonic()
            first, *others = start()
            output = self.wait_for_training(first, "training")
            self.assertLess(time.monotonic() - begin, 8, output)
            for process in (first, *others):
                err = process.communicate(timeout=60)[1]
                self.assertEqual(process.returncode, 0, err)

    def start_by_hand(self, host, rank, settings):
        place = ["--rank", str(rank), "--world-size", str(len(HOSTS)), "--init-method", f"tcp://{ADDRESSES[HOSTS[0]]}:{self.port}"]
        command = [*self.hosts.on(host), BINARY, *place, "--config", str(CONFIG), "--run-dir", str(self.run_dir), *SETTINGS, *settings]
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process


if __name__ == "__main__":
    unittest.main(verbosity=2)
