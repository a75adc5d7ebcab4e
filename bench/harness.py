"""Runs the processes that are measured in turns, and describes the machine."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / "bench" / "peers"
sys.path.insert(0, str(ROOT / "tests" / "golden"))
import cpu

# Keeps large blocks in the process and in huge pages. Otherwise LibTorch returns the memory of each step to the system, and page faults
# bring it back.
ALLOCATOR = {"THP_MEM_ALLOC_ENABLE": "1", "MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}


def num_cores():
    return len(os.sched_getaffinity(0))


def default_data():
    """The full CIFAR-10 if it exists, else the sample in the repository."""
    places = (ROOT.parent / "shared" / "data", ROOT / "data")
    return next((str(p) for p in places if p.is_dir()), str(ROOT / "datasets" / "cifar10_sample"))


def machine():
    memory = next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {
        "cpu": cpu.model(),
        "cpu_kind": cpu.kind(),
        "cores": num_cores(),
        "memory_gib": round(int(memory) / 2**20, 1),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        **{name: importlib.metadata.version(name) for name in ("torch", "torchvision", "pillow")},
        "commit": commit or "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "load_average": os.getloadavg(),
    }


def sweep_file():
    kind = cpu.kind().split()
    extra = [flag for flag in ("avx512_bf16", "amx_bf16") if flag in kind]
    return ROOT / "bench" / "results" / ("_".join(["sweep", *kind[:2], *extra]).lower() + ".json")


def busy_cores(seconds):
    """The number of cores that other processes keep busy (including stolen time) while the measured processes wait."""

    def read():
        fields = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # idle, iowait

    total, idle = read()
    time.sleep(seconds)
    total, idle = (b - a for a, b in zip((total, idle), read()))
    return os.cpu_count() * (1 - idle / max(total, 1))


def peak_memory_mb(pid):
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM")) / 1024


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def rank_variables(num_ranks):
    """The environment variables that torchrun sets, for each rank; none for a single process."""
    if num_ranks == 1:
        return [{}]
    common = {"WORLD_SIZE": num_ranks, "LOCAL_WORLD_SIZE": num_ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return [{k: str(v) for k, v in {**common, "RANK": rank, "LOCAL_RANK": rank}.items()} for rank in range(num_ranks)]


class Worker:
    """A process with the protocol of peers/worker.py, or several ranks, of which the first uses the protocol. The constructor returns
    when the process is ready. `environment`: variables in addition to those of this process and of the allocator setting."""

    def __init__(self, name, argv, images_per_step, allocator=False, num_ranks=1, environment=None):
        self.name, self.images_per_step = name, images_per_step
        environment = {**(ALLOCATOR if allocator else {}), **(environment or {})}
        self.processes = []
        for variables in rank_variables(num_ranks):
            pipe = subprocess.DEVNULL if self.processes else subprocess.PIPE
            env = {**os.environ, **environment, **variables}
            self.processes.append(subprocess.Popen([str(a) for a in argv], stdin=pipe, stdout=pipe, text=True, env=env))
        self.process = self.processes[0]
        self.command = {"argv": self.process.args, "num_ranks": num_ranks, "environment": environment}
        self.settings = json.loads(self.answer().removeprefix("ready "))

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"bench: {' '.join(self.process.args)} ended with status {self.process.wait()}")
        return line

    def begin(self, steps):
        self.process.stdin.write(f"go {steps}\n")
        self.process.stdin.flush()

    def ask(self, steps):
        self.begin(steps)
        return json.loads(self.answer())

    def kill(self):
        for process in self.processes:
            process.kill()
            process.communicate()

    def seconds_for(self, steps):
        return self.ask(steps)["seconds"]

    def calibrate(self, seconds):
        """Sets `steps` to the number of steps that take about `seconds`, and runs them once as warm-up."""
        self.steps = 2
        while (taken := self.seconds_for(self.steps)) < seconds / 4:
            self.steps *= 4
        self.steps = max(2, round(self.steps * seconds / taken))
        self.seconds_for(self.steps)

    def images_per_second(self):
        return self.steps * self.images_per_step / self.seconds_for(self.steps)

    def close(self):
        memory = sum(peak_memory_mb(process.pid) for process in self.processes)
        for process in self.processes:
            process.communicate()
        return memory


def our_worker(name, argv, images_per_step, num_ranks=1):
    # The same value that the program sets for itself (src/main.cpp).
    return Worker(name, argv, images_per_step, num_ranks=num_ranks, environment={"GOMP_SPINCOUNT": "10000"})


def python_worker(name, script, options, images_per_step, allocator=False, num_ranks=1, environment=None):
    """`options`: maps long options to values; True adds the option without a value, False and None omit it."""
    argv = [sys.executable, PEERS / script]
    for key, value in options.items():
        if value is not None and value is not False:
            argv += [f"--{key.replace('_', '-')}"] + ([] if value is True else [value])
    return Worker(name, argv, images_per_step, allocator, num_ranks, environment)


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


def alternate(workers, rounds, seconds):
    """Measures each worker in turn, `rounds` times, while the others wait."""
    for worker in workers:
        worker.calibrate(seconds)
    rates = {worker.name: [] for worker in workers}
    foreign = []
    for i in range(rounds):
        foreign.append(busy_cores(0.5))
        for worker in workers if i % 2 == 0 else reversed(workers):
            time.sleep(0.2)  # until loader processes and spinning threads of the previous worker are idle
            rates[worker.name].append(worker.images_per_second())
    contenders = [
        {"name": w.name, **summary(rates[w.name]), "memory_mb": w.close(), "steps": w.steps, **w.command, "settings": w.settings}
        for w in workers
    ]
    return {"unit": "images/s", "contenders": contenders, "foreign_cores": foreign}


def add_ratios(result):
    """Adds to each contender but the first, which is ours, our speed relative to its own in the same round."""
    ours, *peers = result["contenders"]
    for peer in peers:
        pairs = zip(ours["values"], peer["values"])
        peer["ratio"] = summary([b / a if result["unit"] == "s" else a / b for a, b in pairs])
    return result
