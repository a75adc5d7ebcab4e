"""Ranks that are started individually, as by other launchers: how they meet, agree and exit. TRAINER_BINARY is the program."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from equal_runs import ENVIRONMENT  # noqa: E402
from ports import free_port  # noqa: E402
from program import BINARY, ROOT, FolderCase, events  # noqa: E402
from stranger import Stranger  # noqa: E402
from troubleshooting import plants  # noqa: E402

CONV = ROOT / "configs" / "demo_conv.yaml"
# An experiment with random labels, whose global batches are the same for any number of ranks that divides them.
RANDOM = ["--config", CONV, "dataset.labels=random", "dataset.num_train=96", "dataset.num_validation=50", "dataloader={batch_size: null, global_batch_size: 24}",
          "optimizer.lr=0.001", "training.epochs=2", "logging.every_steps=1", "validation.batch_size=16",
          "runtime={device: cpu, dtype: float64, threads: 1}"]


def start(*args, **variables):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([BINARY, *map(str, args)], cwd=ROOT, env={**ENVIRONMENT, **variables}, **pipes)


def finish(process):
    process.out, process.err = process.communicate(timeout=120)
    return process


def start_rank(rank, world_size, port, *args):
    return start(*args, RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world_size),
                 MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def wait_for_port(port):
    """Returns when rank 0 listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=10).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def foreign_server(test, answer):
    """The port of a server that is not a rank. It sends `answer`, which may be empty, to each client and keeps the connection open."""
    server = socket.create_server(("127.0.0.1", 0))
    test.addCleanup(server.close)
    connections = []

    def serve():
        try:
            while True:
                connections.append(server.accept()[0])
                connections[-1].sendall(answer)
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


class RanksTest(FolderCase):
    def together(self, processes):
        for process in processes:
            self.addCleanup(process.kill)
        return [finish(process) for process in processes]

    def train(self, world_size, run_dir, *args, port=None):
        port = port or free_port()
        ranks = self.together([start_rank(rank, world_size, port, *args, "--run-dir", run_dir) for rank in range(world_size)])
        for rank in ranks:
            self.assertEqual(rank.returncode, 0, rank.err)
        return ranks

    def test_losses_are_equal_for_any_number_of_ranks(self):
        reference = self.folder / "1"
        self.train(1, reference, *RANDOM)
        for world_size in (2, 3, 4):
            run_dir = self.folder / str(world_size)
            ranks = self.train(world_size, run_dir, *RANDOM)
            for rank in ranks[1:]:
                self.assertEqual(rank.err, "")
            for kind, count in (("train", 8), ("validation", 2)):
                ours, theirs = events(run_dir, kind), events(reference, kind)
                self.assertEqual((len(ours), len(theirs)), (count, count))
                for mine, other in zip(ours, theirs):
                    self.assertAlmostEqual(mine["loss"], other["loss"], delta=1e-10)
                    self.assertEqual([mine[key] for key in ("top1", "step", "epoch")], [other[key] for key in ("top1", "step", "epoch")])
            environment = json.loads((run_dir / "environment.json").read_text())
            self.assertEqual((environment["world_size"], len(environment["ranks"])), (world_size, world_size))

    def test_ranks_meet_by_flags(self):
        for url in (f"tcp://127.0.0.1:{free_port()}", f"file://{self.folder}/meeting"):
            run_dir = self.folder / url[:4]
            ranks = self.together([start(*RANDOM, "--run-dir", run_dir, "--rank", rank, "--world-size", 2, "--init-method", url)
                                   for rank in range(2)])
            for rank in ranks:
                self.assertEqual(rank.returncode, 0, rank.err)
            self.assertEqual(events(run_dir, "start")[0]["world_size"], 2)

    def test_concurrent_runs_do_not_meet(self):
        ports = [free_port(), free_port()]
        processes = [start_rank(rank, 2, ports[run], *RANDOM, f"seed={run}", "--run-dir", self.folder / str(run))
                     for run in range(2) for rank in range(2)]
        for process in self.together(processes):
            self.assertEqual(process.returncode, 0, process.err)
        losses = [events(self.folder / str(run), "train")[-1]["loss"] for run in range(2)]
        self.assertNotEqual(*losses)
        for run in range(2):
            alone = self.folder / f"alone{run}"
            self.train(2, alone, *RANDOM, f"seed={run}")
            self.assertEqual(events(alone, "train")[-1]["loss"], losses[run])

    @plants("The port is taken", "Two processes have the same rank", "The run directory is in use")
    def test_a_taken_port_or_rank(self, port_taken, same_rank, in_use):
        port = free_port()
        long_run = [*RANDOM, "training.epochs=1000000", "--run-dir", self.folder / "first"]
        first = [start_rank(rank, 2, port, *long_run) for rank in range(2)]
        for process in first:
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
        for line in first[0].stderr:
            if line.startswith("epoch 1"):
                break
        zero, one = self.together([start_rank(rank, 2, port, *RANDOM, "--run-dir", self.folder / "second") for rank in range(2)])
        port_taken.check(self, zero.err, zero.returncode, PORT=port)
        same_rank.check(self, one.err, one.returncode, RANK=1, PROCESS=first[1].pid)
        # Starts with another port, but the same folder.
        port = free_port()
        zero, one = self.together([start_rank(rank, 2, port, *long_run) for rank in range(2)])
        in_use.check(self, zero.err, zero.returncode, [one.returncode], PROCESS=first[0].pid, FILE=self.folder / "first")
        self.assertEqual(one.err, "")

    @plants("One rank has another configuration")
    def test_another_configuration_is_refused_with_the_difference(self, row):
        port = free_port()
        zero, one = self.together([start_rank(rank, 2, port, *RANDOM, f"optimizer.lr=0.00{rank + 1}", "--run-dir", self.folder / "run")
                                   for rank in range(2)])
        row.check(self, zero.err, zero.returncode, [one.returncode], RANK=1, TEXT="optimizer.lr: 0.002, not 0.001; start all")
        self.assertEqual(one.err, "")
        self.assertFalse((self.folder / "run").exists())

    def test_errors_are_reported_once(self):
        for override, message, code in (("optimizer.learning_rate=1", "unknown key", 2),
                                        ("dataset={name: cifar10, root: /no/such/folder}", "does not contain CIFAR-10", 3),
                                        ("dataloader.global_batch_size=97", "are fewer than one batch of 97", 2)):
            with self.subTest(override):
                port = free_port()
                zero, one = self.together([start_rank(rank, 2, port, *RANDOM, override, "--run-dir", self.folder / str(code) / message[-4:])
                                           for rank in range(2)])
                self.assertEqual((zero.returncode, one.returncode), (code, code), zero.err + one.err)
                self.assertEqual(zero.err.count(message), 1, zero.err)
                self.assertEqual(one.err, "")

    @plants("One rank has another world size")
    def test_another_world_size_is_refused(self, row):
        port = free_port()
        zero, one = self.together([start_rank(rank, 2 + rank, port, *RANDOM, "--run-dir", self.folder / "run") for rank in range(2)])
        row.check(self, zero.err, zero.returncode, [one.returncode], RANK=1)
        self.assertEqual(one.err, "")

    @plants("A rank does not join")
    def test_a_missing_rank_is_named(self, row):
        zero = self.together([start_rank(0, 3, free_port(), *RANDOM, "distributed.timeout_seconds=1", "--run-dir", self.folder / "run")])[0]
        row.check(self, zero.err, zero.returncode)
        self.assertIn("2 of 3 ranks did not join within 1.0s: ranks 1, 2", zero.err)

    @plants("A rank is late", "Rank 0 is late")
    def test_a_late_rank_is_waited_for(self, late, late_0):
        for first, row in ((0, late), (1, late_0)):
            port = free_port()
            args = [*RANDOM, "--run-dir", self.folder / str(first)]
            early = start_rank(first, 2, port, *args)
            self.addCleanup(early.kill)
            output = ""
            for line in early.stderr:
                output += line
                if "wait" in line:
                    break
            ranks = self.together([early, start_rank(1 - first, 2, port, *args)])
            self.assertEqual([rank.returncode for rank in ranks], [0, 0], output + ranks[0].err + ranks[1].err)
            row.check(self, output, RANK=1, ADDRESS=f"127.0.0.1:{port}")

    def test_many_connections_before_the_meeting(self):
        """Connections like those of a port scanner: every second connection is closed at once, the others stay open and send nothing."""
        port = free_port()
        args = [*RANDOM, "--run-dir", self.folder / "run"]
        first = start_rank(0, 2, port, *args)
        self.addCleanup(first.kill)
        connections = []
        deadline = time.monotonic() + 60
        while len(connections) < 500:
            try:
                connections.append(socket.create_connection(("127.0.0.1", port), timeout=10))
            except ConnectionRefusedError:
                # Rank 0 does not listen yet.
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
                continue
            if len(connections) % 2:
                connections[-1].close()
        ranks = self.together([first, start_rank(1, 2, port, *args)])
        for connection in connections:
            connection.close()
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], ranks[0].err + ranks[1].err)

    @plants("A stop is asked for before all ranks have joined")
    def test_a_stop_request_while_waiting_for_ranks(self, row):
        """Ranks that have waited for some seconds end at once. Before that, ranks that were started at the same time may still join."""
        soon = r"warning: stop requested before all ranks have joined; the run ends in [\d.]+m?s unless they join\n"
        now = "warning: stop requested before all ranks have joined; ending the run\n"
        # A rank repeats its warning when the reason changes ("no answer" of a slow connection becomes "no connection").
        again = "(rank 1: warning: rank 1 is waiting up to .* for rank 0 at .*\n)*"
        stopped = "error: stopped on request before all ranks had joined: "
        for waiting, asked, after, expected in (((0,), 0, "waiting for", [stopped + "1 of 3 ranks have joined; waiting for ranks 1, 2\n"]),
                                                ((0,), 0, "", [soon + stopped + "1 of 3 ranks have joined; waiting for ranks 1, 2\n"]),
                                                ((1,), 1, "is waiting up to", [again + f"(rank 1: {soon})?" + again + stopped + "rank 0 could not be reached\n"]),
                                                ((0, 1), 1, "waiting for", [stopped + "2 of 3 ranks have joined; waiting for rank 2\n", again + f"(rank 1: {soon})?" + again + f"rank 1: {now}"])):
            with self.subTest(waiting=waiting, asked=asked, after=after):
                port = free_port()
                ranks = {rank: start_rank(rank, 3, port, *RANDOM, "--run-dir", self.folder / "run") for rank in waiting}
                for process in ranks.values():
                    self.addCleanup(process.kill)
                if after:
                    next(line for line in ranks[waiting[0]].stderr if after in line)
                else:
                    wait_for_port(port)
                ranks[asked].send_signal(signal.SIGTERM)
                ended = self.together(list(ranks.values()))
                for process, text in zip(ended, expected):
                    self.assertEqual(process.returncode, 4, process.err)
                    self.assertRegex(process.err, f"^{text}$")
                row.check(self, ended[0].err, ended[0].returncode)

    def secret_file(self, name, text="0123456789abcdef"):
        path = self.folder / name
        path.write_text(text + "\n")
        path.chmod(0o600)
        return path

    @plants("A stranger writes to the store")
    def test_a_stranger_cannot_read_or_end_a_run(self, row):
        port = free_port()
        ranks = [start_rank(rank, 2, port, *RANDOM, "training.epochs=1000000", f"distributed.secret_file={self.secret_file('secret')}", "--run-dir",
                            self.folder / "run") for rank in range(2)]
        for process in ranks:
            self.addCleanup(process.kill)
        for line in ranks[0].stderr:
            if line.startswith("epoch 1"):
                break
        stranger = Stranger("127.0.0.1", port)
        self.addCleanup(stranger.close)
        counters = ("claim/", "confirmed")
        names = [key for key in stranger.keys() if not any(name in key for name in counters) and not key.startswith("init/")]
        self.assertGreater(len(names), 5)
        for key in names:
            self.assertNotIn(b"optimizer", stranger.get(key), key)
            stranger.set(key, b'{"kind": 0, "rank": 1, "process": "", "where": "", "detail": ""}')
        stranger.set("/trainer/0/failure_detector/failure", b'{"kind": 0, "rank": 1, "process": "", "where": "", "detail": ""}')
        # The loop reads at most the lines of several heartbeats and steps.
        for _, line in zip(range(2000), ranks[0].stderr):
            if "ignored a value" in line:
                row.check(self, line)
                break
        else:
            self.fail("no warning")
        for _, line in zip(range(100), ranks[0].stderr):
            self.assertNotIn("ignored a value", line)
        ranks[0].send_signal(signal.SIGTERM)
        zero, one = self.together(ranks)
        self.assertEqual([zero.returncode, one.returncode], [75, 75], zero.err + one.err)
        self.assertEqual(one.err.count("ignored a value"), 1, one.err)

    @plants("Ranks have different secrets")
    def test_different_secrets(self, row):
        port = free_port()
        zero, one = self.together([start_rank(rank, 2, port, *RANDOM, "distributed.timeout_seconds=7", "--run-dir", self.folder / "run",
                                              f"distributed.secret_file={self.secret_file(str(rank), 16 * str(rank))}") for rank in range(2)])
        row.check(self, one.err, one.returncode, RANK=1)
        self.assertEqual(zero.returncode, 4, zero.err)
        self.assertIn("rank 1 and rank 0 have different secrets (distributed.secret_file differs), so they cannot connect", zero.err)

    @plants("The file of `distributed.secret_file` cannot be used")
    def test_a_missing_secret_file(self, row):
        port = free_port()
        zero, one = self.together([start_rank(rank, 2, port, *RANDOM, "distributed.secret_file=/no/such/file", "--run-dir", self.folder / "run")
                                   for rank in range(2)])
        row.check(self, zero.err, zero.returncode, [one.returncode], FILE="/no/such/file")
        self.assertEqual(one.err, "")

    def test_the_store_listens_on_the_address_of_rank_0_alone(self):
        port = free_port()
        zero = start_rank(0, 2, port, *RANDOM, "--run-dir", self.folder / "run")
        self.addCleanup(zero.kill)
        next(line for line in zero.stderr if "waiting for" in line)
        listening = "0A"
        lines = [line.split() for table in ("tcp", "tcp6") for line in pathlib.Path("/proc/net", table).read_text().splitlines()[1:]]
        addresses = [fields[1] for fields in lines if fields[3] == listening and fields[1].endswith(f":{port:04X}")]
        self.assertEqual(addresses, [f"0100007F:{port:04X}"])
        zero.kill()
        finish(zero)

    @plants("Something else listens where rank 0 should, or nothing")
    def test_missing_rank_0(self, row):
        for port in (foreign_server(self, b""), foreign_server(self, b"HTTP/1.1 400 Bad Request\r\n\r\n"), free_port()):
            one = self.together([start_rank(1, 2, port, *RANDOM, "distributed.timeout_seconds=1", "--run-dir", self.folder / "run")])[0]
            row.check(self, one.err, one.returncode, RANK=1, ADDRESS=f"127.0.0.1:{port}")

    @plants("The name of rank 0's host cannot be resolved")
    def test_a_name_that_cannot_be_resolved_yet(self, row):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        hosts, switch = self.folder / "hosts", self.folder / "nsswitch.conf"
        hosts.write_text("127.0.0.1 localhost\n")
        switch.write_text("hosts: files\n")
        own_names = ["unshare", "-m", "sh", "-c", f'mount --bind {hosts} /etc/hosts && mount --bind {switch} /etc/nsswitch.conf && exec "$@"', "-"]
        port = free_port()

        def start_rank_of(rank, name, *settings):
            command = [*own_names, BINARY, *RANDOM, *settings, "--run-dir", self.folder / name, "--rank", rank, "--world-size", 2,
                       "--init-method", f"tcp://{name}:{port}"]
            return subprocess.Popen(list(map(str, command)), cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE, text=True)

        alone = self.together([start_rank_of(1, "nobody", "distributed.timeout_seconds=2")])[0]
        row.check(self, alone.err, alone.returncode, RANK=1, ADDRESS=f"nobody:{port}")
        one = start_rank_of(1, "rank-zero")
        first = one.stderr.readline()
        while "for rank 0 at" not in first:
            first = one.stderr.readline()
        self.assertIn("(the name rank-zero cannot be resolved: Name or service not known)", first)
        hosts.write_text("127.0.0.1 localhost rank-zero\n")
        for rank in self.together([one, start_rank_of(0, "rank-zero")]):
            self.assertEqual(rank.returncode, 0, rank.err)

    def test_an_address_in_brackets(self):
        port = free_port()
        variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "[::1]", "MASTER_PORT": str(port)}
        for rank in self.together([start(*RANDOM, "--run-dir", self.folder / "run", RANK=str(rank), **variables) for rank in range(2)]):
            self.assertEqual(rank.returncode, 0, rank.err)

    @plants("The file of `file://` is left from an earlier run")
    def test_a_stale_meeting_file(self, row):
        meeting = self.folder / "meeting"

        def start_both(run_dir):
            args = [*RANDOM, "training.epochs=1000000", "--run-dir", self.folder / run_dir, "--world-size", 2, "--init-method", f"file://{meeting}"]
            return [start(*args, "--rank", rank) for rank in range(2)]

        first = start_both("first")
        for line in first[0].stderr:
            if line.startswith("epoch 1"):
                break
        for process in first:
            process.kill()
        self.together(first)
        for rank, process in enumerate(self.together(start_both("second"))):
            row.check(self, process.err, process.returncode, RANK=rank, FILE=meeting, PROCESS=first[rank].pid)

    def test_a_lost_rank_ends_the_others(self):
        for victim in (0, 1):
            port = free_port()
            ranks = [start_rank(rank, 2, port, *RANDOM, "training.epochs=1000000", "--run-dir", self.folder / str(victim)) for rank in range(2)]
            for process in ranks:
                self.addCleanup(process.kill)
            for line in ranks[0].stderr:
                if line.startswith("epoch 1"):
                    break
            ranks[victim].send_signal(signal.SIGKILL)
            survivor = finish(ranks[1 - victim])
            finish(ranks[victim])
            self.assertEqual(survivor.returncode, 4, survivor.err)
            self.assertRegex(survivor.err, r"error: rank \d \(process \d+ on .*\) exited without reporting an error in .*; this rank exits")

    def test_all_ranks_may_log(self):
        run_dir = self.folder / "run"
        self.train(2, run_dir, *RANDOM, "logging.all_ranks=true")
        self.assertIn("step 4/4", (run_dir / "rank_1.log").read_text())
        self.assertFalse((run_dir / "rank_0.log").exists())


if __name__ == "__main__":
    unittest.main()
