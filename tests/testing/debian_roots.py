"""Root folders of Debian releases, and commands that run in them without a network. Making a root folder takes half a minute, so the tests
of a build share the folders in TRAINER_BUILD_DIR/roots."""

import fcntl
import os
import pathlib
import shlex
import shutil
import subprocess
import unittest

from equal_runs import needs
from launches import ROOT

PROGRAMS = ("debootstrap", "unshare", "chroot", "ip")


def needs_roots(*programs):
    needs([program for program in (*PROGRAMS, *programs) if shutil.which(program) is None])
    if os.geteuid() != 0:
        raise unittest.SkipTest("debootstrap and chroot need root")


def run_checked(command):
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        raise AssertionError(f"{command}: {run.stdout[-3000:]}{run.stderr[-3000:]}")
    return run


def copy_root(release, folder, packages=()):
    """Copies the root folder of a release, with its required packages and `packages`, to a folder that a test may change."""
    roots = pathlib.Path(os.environ["TRAINER_BUILD_DIR"], "roots")
    roots.mkdir(exist_ok=True)
    shared = roots / "-".join((release, *packages))
    with open(roots / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            unfinished = roots / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            mirror = run_checked(["bash", "-c", f"source {shlex.quote(str(ROOT))}/scripts/common.sh; debian_mirror"]).stdout.split()
            include = [f"--include={','.join(packages)}"] if packages else []
            run_checked(["debootstrap", "--variant=minbase", *include, release, unfinished, *mirror])
            shutil.rmtree(unfinished / "var" / "cache" / "apt")
            unfinished.rename(shared)
    run_checked(["cp", "-a", "--reflink=auto", shared, folder])


def run_inside(root, command, mounts=(), timeout=300):
    """Runs a bash command in the root folder. `mounts`: pairs of a folder of this machine and the folder below `root` where the command
    finds it."""
    words = [f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(target))}" for source, target in mounts]
    root = shlex.quote(str(root))
    words += ["ip link set lo up", f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev",
              f"exec env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot {root} bash -c {shlex.quote(f'cd /tmp && {command}')}"]
    return subprocess.run(["unshare", "--mount", "--net", "bash", "-c", " && ".join(words)], capture_output=True, text=True, timeout=timeout)
