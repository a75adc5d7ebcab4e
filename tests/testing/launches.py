"""A test case for launches of several ranks with faults, which checks that they leave nothing behind. TRAINER_BINARY is the program,
TRAINER_FAULTS the library that injects faults (tests/e2e/faults.cpp)."""

import array
import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

from ports import free_port
from program import BINARY, ROOT, FolderCase

# The libraries to preload: the faults, then those that the tests' environment preloads.
FAULTS = ":".join(filter(None, (os.environ["TRAINER_FAULTS"], os.environ.get("LD_PRELOAD"))))
HANG_SECONDS = 4
NUM_RANKS = 3
CONFIG = ROOT / "configs" / "quickstart.yaml"
# A step takes a fraction of a second, a validation with many batches follows step 2, and training does not end on its own.
SETTINGS = ["model={name: demo_conv, num_classes: 10}", "training.epochs=100000", "dataloader={batch_size: null, global_batch_size: 600}",
            "validation.batch_size=10", f"distributed.hang_seconds={HANG_SECONDS}"]


def write_safetensors(path, tensors):
    """`tensors`: {name: (shape, values)}, stored as float32."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        begin, data = len(data), data + array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def stat_of(pid):
    """The fields of /proc/PID/stat, beginning with the state."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def state_of(pid):
    return stat_of(pid)[0]


def processes_of(session):
    """The processes of a session that are still running."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = stat_of(folder.name)
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(folder.name))
    return found


def ranks_of(process):
    """The process ids of the launcher's children, in the order of their start, in which the system lists them."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return list(map(int, children))


def shared_memory():
    return set(os.listdir("/dev/shm"))


class LaunchCase(FolderCase):
    def setUp(self):
        super().setUp()
        self.exits = self.folder / "exits"
        # All launches of a test use the same port, one after the other.
        self.port = free_port()

    def start(self, fault="", launcher_args=(), settings=(), prefix=(), variables={}, num_ranks=NUM_RANKS, **options):
        """`prefix`: words before the launcher's command line."""
        self.exits.unlink(missing_ok=True)
        self.shared_memory_before = shared_memory()
        env = {**os.environ, "LD_PRELOAD": FAULTS, "TRAINER_TEST_FAULT": fault, "TRAINER_TEST_EXITS": str(self.exits), "OMP_NUM_THREADS": "1", **variables}
        command = [*prefix, BINARY, "launch", "--nproc-per-node", str(num_ranks), "--master-port", str(self.port), *launcher_args, "--config",
                   str(CONFIG), "--run-dir", str(self.run_dir), *SETTINGS, *settings]
        pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, **{**pipes, **options})
        if process.stderr:
            self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def end(self, process, seconds=60):
        """Waits until the launch has ended, checks that it leaves nothing behind, and returns its stderr."""
        _, err = process.communicate(timeout=seconds)
        self.assert_nothing_left(process, err)
        return err

    def assert_nothing_left(self, process, err):
        # The system needs a moment to clean up after a process that was killed.
        deadline = time.monotonic() + 5
        while (left := self.leftovers_of(process)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(left, [], err)

    def leftovers_of(self, process):
        left = [f"process {pid}" for pid in processes_of(process.pid)]
        left += [f"shared memory {name}" for name in shared_memory() - self.shared_memory_before]
        try:
            socket.create_server(("127.0.0.1", self.port)).close()  # the next run's rank 0 will open this port
        except OSError as error:
            left.append(f"port {self.port}: {error}")
        try:
            with open(self.run_dir / ".lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            pass
        except BlockingIOError as error:
            left.append(f"lock: {error}")
        return left

    def exit_codes(self):
        """The exit codes of the ranks, in the order of their start."""
        lines = (line.split() for line in self.exits.read_text().splitlines())
        return [code for _, code in sorted((int(number), int(code)) for number, code in lines)]

    def assert_named(self, err, survivors, pattern):
        """Checks that all survivors report the same failure in the same words."""
        lines = [line for line in err.splitlines() if line.endswith("; this rank exits")]
        messages = {re.sub(r"^(rank \d+: )?error: ", "", line) for line in lines}
        self.assertEqual(len(lines), survivors, err)
        self.assertEqual(len(messages), 1, err)
        self.assertRegex(messages.pop(), pattern)

    def wait_for_training(self, process, sign="epoch"):
        """Waits for a line that begins with `sign`; returns stderr up to that line."""
        output = ""
        for line in process.stderr:
            output += line
            if line.startswith(sign):
                return output
        self.fail(f"it does not train:\n{output}")

    def steps_done(self):
        metrics = self.run_dir / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return json.loads(lines[-1])["step"] if lines else 0

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, "the condition did not become true")
            time.sleep(0.05)

    def stop_and_end(self, process):
        """Stops the launch by SIGTERM and returns its stderr."""
        process.send_signal(signal.SIGTERM)
        err = self.end(process)
        self.assertEqual(process.returncode, 75, err)
        return err
