"""Elastic runs on three hosts (`trainer launch --nnodes 2:3`): a host is lost, and one returns."""

import json
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from hosts import Hosts, addresses_of  # noqa: E402
from launches import LaunchCase  # noqa: E402
from troubleshooting import plants  # noqa: E402

ADDRESSES = addresses_of(3)
HOSTS = tuple(ADDRESSES)
# A lost host is noticed after two to three seconds.
TIMES = "last_call_timeout=1,join_timeout=60,keep_alive_interval=1,keep_alive_max_attempt=2"
FINITE = ["optimizer.lr=0.002", "training.epochs=10", "validation.every_epochs=5", "checkpoint={keep_last: 1, every_steps: 5}", "logging.every_steps=5"]
# Long enough for a host to be lost and to return.
LONG = [*FINITE, "training.epochs=40"]


def measured(run_dir):
    """What is measured: of each interval of training and each validation its place with the number of samples, and the loss."""
    events = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    events = [event for event in events if event["event"] in ("train", "validation")]
    return [(event["event"], event["epoch"], event["step"], event.get("num_samples")) for event in events], [event["loss"] for event in events]


class ElasticTest(LaunchCase):
    def setUp(self):
        super().setUp()
        self.hosts = Hosts(self, ADDRESSES)
        self.outputs = {}

    def start_on(self, host, *launcher_args, settings=FINITE):
        nodes = ["--nnodes", "2:3", "--node-rank", str(HOSTS.index(host)), "--master-addr", ADDRESSES[HOSTS[0]], "--rdzv-conf", TIMES]
        return self.start(launcher_args=[*nodes, *launcher_args], settings=settings, prefix=self.hosts.on(host), num_ranks=1)

    def start_all(self, *launcher_args, **options):
        return [self.start_on(host, *launcher_args, **options) for host in HOSTS]

    def read_until(self, process, sign):
        """Reads the process's stderr up to a line with `sign`."""
        for line in process.stderr:
            self.outputs[process] = self.outputs.get(process, "") + line
            if sign in line:
                return
        self.fail(f"no line with {sign}:\n{self.outputs.get(process)}")

    def end_all(self, processes, code, lost=None):
        """Waits until the launches have ended with this exit code; returns the whole stderr of each. What the launch on a `lost` host has
        printed is shown if they end with another code."""
        rests = [process.communicate(timeout=120)[1] for process in processes]
        outputs = [self.outputs.get(process, "") + rest for process, rest in zip(processes, rests)]
        if lost and any(process.returncode != code for process in processes):
            lost.kill()
            outputs.append(self.outputs.get(lost, "") + lost.communicate()[1])
        for process, err in zip(processes, outputs):
            self.assertEqual(process.returncode, code, "\n".join(outputs))
            self.assert_nothing_left(process, err)
        return outputs

    def assert_straight(self, err, settings=FINITE):
        """The run has measured what an uninterrupted run on one host measures, on the same samples."""
        run_dir, self.run_dir = self.run_dir, self.folder / "straight"
        straight = self.start(settings=settings)
        self.end(straight)
        self.assertEqual(straight.returncode, 0)
        places, losses = measured(run_dir)
        straight_places, straight_losses = measured(self.run_dir)
        self.assertEqual(places, straight_places, err)
        for loss, expected in zip(losses, straight_losses):
            self.assertAlmostEqual(loss, expected, delta=1e-3 * abs(expected))

    @plants("A host of an elastic run is lost")
    def test_a_host_is_lost_for_good(self, row):
        first, other, lost = self.start_all("--max-restarts", "1")
        self.wait_for(lambda: self.steps_done() > 10)
        self.hosts.unplug("node-c")
        err, _ = self.end_all([first, other], 0, lost)
        row.check(self, err)
        self.assertIn("node 2 (node-c) is lost: restart 1 of 1\n", err)
        self.assertIn("attempt 1: 2 nodes with 2 ranks, from rank 0 on node 0\n", err)
        self.assertRegex(err, r"resumes from \S+/step_\d+\.pt")
        self.assert_straight(err)
        lost.send_signal(signal.SIGTERM)
        self.assertIn("the connection to the launcher of node 0 at 10.77.0.1:", self.end_all([lost], 75)[0])

    @plants("A host joins an elastic run")
    def test_a_host_returns(self, row):
        first, other, returning = self.start_all("--max-restarts", "1", settings=LONG)
        self.wait_for(lambda: self.steps_done() > 10)
        self.hosts.unplug("node-c")
        self.read_until(first, "attempt 1: 2 nodes")
        self.read_until(first, "resumes from")
        self.hosts.plug("node-c")
        err = self.end_all([first, other, returning], 0)[0]
        row.check(self, err)
        self.assertIn("attempt 2: 3 nodes with 3 ranks, from rank 0 on node 0\n", err)
        self.assert_straight(err, LONG)

    def test_a_stop_request_on_one_host_ends_the_run(self):
        processes = self.start_all(settings=[])
        self.wait_for_training(processes[0])
        processes[1].send_signal(signal.SIGTERM)
        self.end_all(processes, 75)

    def test_errors_in_the_configuration_are_not_restarted(self):
        processes = [self.start_on(host, "--max-restarts", "3", settings=["training.epochs=0"]) for host in HOSTS]
        for err in self.end_all(processes, 2):
            self.assertNotIn("restart", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
