"""A run on three hosts under torchrun: one host is lost and returns, another is lost permanently. `torchrun --nnodes 2:3` decides which
hosts take part, and the program resumes with that number of ranks. Takes a minute."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from hosts import Hosts, addresses_of  # noqa: E402
from launches import BINARY, CONFIG, ROOT, LaunchCase, processes_of  # noqa: E402

ADDRESSES = addresses_of(3)
SETTINGS = ["model={name: demo_conv, num_classes: 10}", "dataloader={batch_size: null, global_batch_size: 600}", "optimizer.lr=0.002",
            "training.epochs=150", "validation.every_epochs=10", "checkpoint={keep_last: 1, every_steps: 5}", "logging.every_steps=5",
            "distributed.hang_seconds=4", "runtime.device=cpu"]
# A host is lost after keep_alive_interval * keep_alive_max_attempt seconds without an answer.
TIMES = "last_call_timeout=2,join_timeout=60,keep_alive_interval=1,keep_alive_max_attempt=3"


def measured(run_dir):
    """For each training interval and each validation: its step, the number of samples, and the loss."""
    events = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    events = [event for event in events if event["event"] in ("train", "validation")]
    return [(event["event"], event["epoch"], event["step"], event.get("num_samples")) for event in events], [event["loss"] for event in events]


class TorchrunHostsTest(LaunchCase):
    def setUp(self):
        super().setUp()
        self.hosts = Hosts(self, ADDRESSES)
        # torchrun looks up the name of its host, so /etc/hosts must contain it.
        names = "".join(f"{address} {host}\n" for host, address in {"localhost": "127.0.0.1", **ADDRESSES}.items())
        for host in ADDRESSES:
            self.hosts.write_etc(self, host, {"hosts": names})

    def start_on(self, host):
        # Without the last variable, torchrun sends no address to hosts that join later.
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        command = [*self.hosts.on(host), sys.executable, "-m", "torch.distributed.run", "--no-python", "--nnodes", "2:3", "--nproc-per-node", "1",
                   "--rdzv-backend", "c10d", "--rdzv-endpoint", f"10.77.0.1:{self.port}", "--rdzv-id", "hosts", "--rdzv-conf", TIMES,
                   "--local-addr", ADDRESSES[host], "--max-restarts", "3", "--monitor-interval", "0.5",
                   BINARY, "--config", str(CONFIG), "--run-dir", str(self.run_dir), *SETTINGS]
        output = self.folder / f"{host}.log"
        with output.open("w") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(self.end_session, process)
        return process

    def end_session(self, process):
        for pid in processes_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()

    def log_of(self, host):
        return (self.folder / f"{host}.log").read_text()

    def logs(self):
        return "\n".join(f"{host}:\n{self.log_of(host)[-4000:]}" for host in ADDRESSES)

    def starts(self):
        """The world sizes with which rank 0 has started training."""
        return [int(size) for size in re.findall(r"^training .*  world_size (\d)", self.log_of("node-a"), re.MULTILINE)]

    def wait_for_steps(self, starts):
        """Waits until the last of this number of starts has trained."""
        def is_past():
            started = self.log_of("node-a").split("\ntraining ")
            return len(started) == starts + 1 and "\nepoch " in started[-1]

        self.wait_for(is_past)

    def assert_straight(self):
        """The run has the same events as an uninterrupted run on one host, on the same samples."""
        straight = self.folder / "straight"
        subprocess.run([BINARY, "--config", str(CONFIG), "--run-dir", str(straight), *SETTINGS], cwd=ROOT, check=True, capture_output=True)
        places, losses = measured(self.run_dir)
        straight_places, straight_losses = measured(straight)
        self.assertEqual(places, straight_places, self.log_of("node-a"))
        for loss, expected in zip(losses, straight_losses):
            # The losses are float32 sums, whose parts depend on the number of ranks.
            self.assertAlmostEqual(loss, expected, delta=1e-3 * abs(expected))

    def test_hosts_come_and_go(self):
        processes = {host: self.start_on(host) for host in ADDRESSES}
        self.wait_for_steps(starts=1)
        self.hosts.unplug("node-c")
        self.end_session(processes["node-c"])
        self.wait_for_steps(starts=2)
        self.hosts.plug("node-c")
        processes["node-c"] = self.start_on("node-c")
        self.wait_for_steps(starts=3)
        self.hosts.unplug("node-b")
        for host in ("node-a", "node-c"):
            self.assertEqual(processes[host].wait(timeout=120), 0, self.logs())
        self.assertEqual(self.starts(), [3, 2, 3, 2], self.logs())
        self.assert_straight()


if __name__ == "__main__":
    unittest.main(verbosity=2)
