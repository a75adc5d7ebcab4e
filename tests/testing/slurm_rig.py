"""A Slurm cluster of two nodes with two GPUs each on this machine: slurmctld and two slurmd with a separate configuration."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import time

from ports import free_port

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
# Debian installs the daemons in /usr/sbin, which is only in root's PATH.
PATH = os.environ["PATH"] + ":/usr/sbin"
# Node names that resolve to this machine, because ranks connect to rank 0 by its node's name.
NODES = ("127.0.0.1", "127.0.0.2")

# The ports of ranks are computed from the job number, so two clusters on one machine need different job numbers.
CONFIGURATION = """\
ClusterName=rig
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
GresTypes=gpu
FirstJobId={job}
{nodes}
PartitionName=rig Nodes={names} Default=YES State=UP
"""


def missing_programs():
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


class SlurmRig:
    def __init__(self, folder):
        """`folder`: an empty folder for the daemons' files."""
        self.folder = pathlib.Path(folder)
        outer = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        self.environment = {**outer, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.daemons = []

    def start(self):
        ports = [free_port() for _ in range(1 + len(NODES))]
        nodes = [f"NodeName={name} NodeHostname=localhost NodeAddr={name} Port={port} CPUs=4 Gres=gpu:2" for name, port in zip(NODES, ports[1:])]
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(port=ports[0], job=random.randrange(1, 10**6), user=os.environ.get("USER", "root"), folder=self.folder,
                                                                     nodes="\n".join(nodes), names=",".join(NODES)))
        # Plain files replace the device files of GPUs.
        (self.folder / "gres.conf").write_text("".join(f"NodeName={name} Name=gpu File={self.folder}/gpu[0-1]\n" for name in NODES))
        # Control groups are not used here. The plug-in that slurmd chooses by default needs some that a container lacks.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        for name in ("state", *NODES):
            (self.folder / name).mkdir()
        for name in ("gpu0", "gpu1"):
            (self.folder / name).touch()
        for command in (["slurmctld", "-D"], *(["slurmd", "-D", "-N", name] for name in NODES)):
            self.daemons.append(subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                                 stderr=subprocess.DEVNULL))
        self.wait_for(lambda: self.run("sinfo", "-h", "-o", "%T") == "idle", lambda: "the nodes do not become idle", seconds=30)

    def stop(self):
        with contextlib.suppress(AssertionError, subprocess.CalledProcessError):
            self.run("scancel", "--quiet", "--state=PENDING,RUNNING")
            self.wait_for(lambda: not self.run("squeue", "-h"), lambda: "jobs do not end", seconds=20)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait()

    def run(self, *command, check=False):
        run = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=check, timeout=60)
        return run.stdout.strip()

    def wait_for(self, condition, what, seconds=60):
        """`what` returns the message if the condition does not become true in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            logs = "".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in self.folder.glob("*.log"))
            assert time.monotonic() < deadline, f"{what()}\n{logs}"
            time.sleep(0.1)

    def submit(self, *args, cwd, **variables):
        """Submits a batch job and returns its number."""
        run = subprocess.run(["sbatch", "--parsable", *map(str, args)], cwd=cwd, env={**self.environment, **variables}, capture_output=True,
                             text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    def job(self, number, field):
        """A field of `scontrol show job`; empty if it does not exist."""
        found = re.search(rf"\b{field}=(\S*)", self.run("scontrol", "show", "job", number))
        return found[1] if found else ""

    def end(self, number, seconds=60):
        """Waits for the end of the job; returns its state and exit code."""
        self.wait_for(lambda: self.job(number, "JobState") in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"),
                      lambda: f"job {number} does not end", seconds)
        return self.job(number, "JobState"), int(self.job(number, "ExitCode").split(":")[0])
