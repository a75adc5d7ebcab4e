"""Tests and measures the program on this machine's GPUs: `run.sh --help`."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

KIT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(KIT / "tests" / "testing"))
from gpus import visible_gpus  # noqa: E402

BIN = KIT / "bin"
TRAINER = BIN / "trainer"
# The time limit for one step: a test program, a training or the measurements.
LIMIT_SECONDS = 540
TESTS = sorted(path.stem.removeprefix("test_") for path in (KIT / "tests" / "gpu").glob("test_*.py"))
TEXT = f"""parts:
  quick   the tests of single components, and a short training
  tests   quick, then all tests of whole runs, each of which is also a part: {", ".join(TESTS)}
  bench   the measurements against Python
  all     tests, then bench
exit codes: 0 all passed, 1 something failed, 2 there is no GPU, or no LibTorch that fits
"""
LIBTORCH_FACTS = """
import json, torch
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "folder": torch.__path__[0]}))
"""


class Refusal(Exception):
    """The machine lacks something that the kit needs."""


def read_first_line(path):
    try:
        return path.read_text().splitlines()[0]
    except (OSError, IndexError):
        return None


def find_libtorch(python, wanted):
    # Runs in the kit's folder, because Python would import a torch.py of the current folder instead of the package.
    found = subprocess.run([python, "-c", LIBTORCH_FACTS], cwd=KIT, capture_output=True, text=True)
    if found.returncode != 0:
        reason = (found.stderr.strip().splitlines() or ["no message"])[-1]
        raise Refusal(f"{python} cannot import torch: {reason}; install torch {wanted}, or name another Python with --python")
    torch = json.loads(found.stdout.splitlines()[-1])
    if torch["version"].split("+")[0] != wanted:
        raise Refusal(f"{python} has torch {torch['version']}, but the kit was built for {wanted}; name another Python with --python")
    if not torch["cuda"]:
        raise Refusal(f"torch {torch['version']} of {python} is for CPUs only; install the one with CUDA")
    return torch


class Kit:
    def __init__(self, arguments):
        self.arguments = arguments
        self.results = {"time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "steps": [],
                        "kit": json.loads((KIT / "kit.json").read_text())}

    def save(self):
        self.arguments.results.write_text(json.dumps(self.results, indent=1) + "\n")

    def prepare(self):
        """Unpacks the libraries, finds LibTorch, and prints a description of this machine."""
        if not (KIT / "lib").exists():
            with tarfile.open(KIT / "lib.tar.xz") as archive:
                # Older versions of Python do not have the filter.
                archive.extractall(KIT / "lib", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        torch = find_libtorch(self.arguments.python, self.results["kit"]["torch"])
        # NVIDIA's libraries are installed beside the torch package. Without these paths, another cuDNN of the system could be mixed with
        # them.
        nvidia = sorted({str(path.parent) for path in pathlib.Path(torch["folder"]).parent.glob("nvidia/*/lib/*.so*")})
        paths = [f"{torch['folder']}/lib", *nvidia, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(paths), "TRAINER_BINARY": str(TRAINER), "PYTHONDONTWRITEBYTECODE": "1",
                            "TRAINER_FAULTS": str(BIN / "libtrainer_faults.so"), "TRAINER_REQUIRE_GPU": "1"}
        version = subprocess.run([TRAINER, "--version"], env=self.environment, capture_output=True, text=True)
        if version.returncode != 0:
            raise Refusal(f"the program does not start here: {version.stderr.strip()}")
        names, reason = visible_gpus()
        self.no_gpu = reason
        self.results["machine"] = {
            "system": f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {' '.join(platform.libc_ver())}",
            "python": platform.python_version(), "torch": torch, "trainer": version.stdout.splitlines(), "gpus": names,
            "driver": read_first_line(pathlib.Path("/proc/driver/nvidia/version")), "cores": len(os.sched_getaffinity(0))}
        machine = self.results["machine"]
        print(f"system   {machine['system']}, Python {machine['python']}, {machine['cores']} cores")
        print(f"LibTorch {torch['version']} in {torch['folder']}")
        print(f"program  {', '.join(machine['trainer'])}")
        print(f"driver   {machine['driver'] or 'none'}")
        print(f"GPUs     {', '.join(names) or 'none'}", flush=True)
        self.save()

    def step(self, name, command, cwd=KIT):
        """Runs a command; its output is shown if it fails. Returns whether it succeeded."""
        print(f"{name} ...", end=" ", flush=True)
        start = time.monotonic()
        with subprocess.Popen([str(word) for word in command], cwd=cwd, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=LIMIT_SECONDS)
                status = "passed" if process.returncode == 0 else f"failed with {process.returncode}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                status = f"killed after {LIMIT_SECONDS} s"
        seconds = round(time.monotonic() - start, 1)
        print(f"{status}, {seconds} s", flush=True)
        if status != "passed":
            print(output, flush=True)
        self.results["steps"].append({"name": name, "command": [str(word) for word in command], "status": status, "seconds": seconds,
                                      "output": output[-20000:]})
        self.save()
        return status == "passed"

    def train(self, device):
        with tempfile.TemporaryDirectory(prefix="trainer-kit-") as folder:
            return self.step(f"training on {device}", [TRAINER, "--config", KIT / "configs/quickstart.yaml", "--run-dir", f"{folder}/run",
                                                       "training.epochs=1", f"runtime.device={device}"])

    def run(self):
        self.prepare()
        passed = self.train("cpu")
        if self.no_gpu:
            raise Refusal(f"no GPU: {self.no_gpu}")
        parts = set(self.arguments.parts)
        if "all" in parts:
            parts |= {"tests", "bench"}
        if parts & {"quick", "tests"}:
            passed = self.step("gpu_test", [BIN / "gpu_test", "--gtest_brief=1"]) and passed
            passed = self.train("cuda") and passed
        for name in TESTS:
            if parts & {"tests", name}:
                passed = self.step(name, [self.arguments.python, KIT / "tests" / "gpu" / f"test_{name}.py"]) and passed
        if "bench" in parts:
            figures = self.arguments.results.with_name(f"{self.arguments.results.stem}_bench.json")
            passed = self.step("bench", [self.arguments.python, KIT / "bench/gpu.py", "--bin", BIN, "--output", figures]) and passed
            print(self.results["steps"][-1]["output"])
        return 0 if passed else 1


def main():
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__, epilog=TEXT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", default=["quick"], help="one or more of the parts below; default: quick")
    parser.add_argument("--python", default="python3", help="the Python whose torch package is used; default: %(default)s")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results.json"), help="the file to write; default: %(default)s")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in ("quick", "tests", "bench", "all", *TESTS)]
    if unknown:
        parser.error(f"unknown part {unknown[0]}; --help lists the parts")
    kit = Kit(arguments)
    try:
        status = kit.run()
    except Refusal as refusal:
        print(refusal)
        kit.results["refusal"] = str(refusal)
        status = 2
    kit.save()
    print(f"results: {kit.arguments.results.resolve()}")
    return status


if __name__ == "__main__":
    sys.exit(main())
