"""Tests and measures the program on this machine's GPUs: `run.sh --help`."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
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
# The time limits of the parts for a lent machine, together with the start of the machine less than 15 minutes.
DAY_SECONDS = {"day1": 545, "day2": 250}
TESTS = sorted(path.stem.removeprefix("test_") for path in (KIT / "tests" / "gpu").glob("test_*.py"))
TEXT = f"""parts:
  quick   the tests of single components, and a short training
  tests   quick, then all tests of whole runs, each of which is also a part: {", ".join(TESTS)}
  bench   the measurements against Python
  all     tests, then bench
  day1    for a machine that is lent for a quarter of an hour: at most {DAY_SECONDS["day1"]} s, in which the most important questions are decided
  day2    after day1: at most {DAY_SECONDS["day2"]} s for further tests and measurements
Each decision of day1 is written to RESULTS_decisions.json (day1_decisions.json) as soon as it is made, with its rule and what was measured. The
whole output of each step is in the folder RESULTS_output.
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
    if torch["version"].split(".")[:2] != wanted.split(".")[:2]:
        raise Refusal(f"{python} has torch {torch['version']}, but the kit was built for {wanted}; name another Python with --python")
    if not torch["cuda"]:
        raise Refusal(f"torch {torch['version']} of {python} is for CPUs only; install the one with CUDA")
    return torch


def medians(figures, title):
    """The contenders of a case and their images per second; empty if the case was not measured."""
    result = figures.get("results", {}).get(title, {})
    return {one["name"]: one["median"] for one in result.get("contenders", [])}


class Decisions:
    """Rules that were written before anything was measured, so that a decision takes no time."""

    SMALL, LARGE = "ResNet-18 x 128, 32 px", "ResNet-50 x 128, 224 px"

    def __init__(self, steps, figures):
        """`steps`: by name, whether each finished step passed. `figures`: of bench/gpu.py."""
        self.steps, self.rates = steps, {title: medians(figures, title) for title in (self.SMALL, self.LARGE)}

    def ratio(self, title, name):
        rates = self.rates[title]
        return round(rates[name] / rates["ours"], 3) if {name, "ours"} <= rates.keys() else None

    def wins(self, name, small, large, test):
        """Whether a setting is at least so many times as fast as ours without it, and its values are right: yes, no or open."""
        ratios = self.ratio(self.SMALL, name), self.ratio(self.LARGE, name)
        passed = self.steps.get(test)
        measured = {"ratio of ResNet-18": ratios[0], "ratio of ResNet-50": ratios[1], test: passed}
        is_slower = any(ratio is not None and ratio < least for ratio, least in zip(ratios, (small, large)))
        return measured, "no" if passed is False or is_slower else "open" if None in (*ratios, passed) else "yes"

    def all(self):
        rows = []

        def add(rule, measured, decision):
            rows.append({"rule": rule, "measured": measured, "decision": decision})

        add("runtime.fuse: auto includes GPUs if fused is at least 1.02 times as fast as ours in both, and gpu_test passes",
            *self.wins("ours, fused", 1.02, 1.02, "gpu_test"))
        add("runtime.cuda_graph: auto is the default if it is at least 1.02 times as fast for ResNet-18 and 0.98 times for ResNet-50, and its "
            "steps have the bits of steps without", *self.wins("ours, CUDA graph", 1.02, 0.98, "bits of a graph"))
        for title, rates in self.rates.items():
            ours = max((rate for name, rate in rates.items() if name.startswith("ours")), default=None)
            theirs = max((rate for name, rate in rates.items() if name.startswith("Python")), default=None)
            decision = "open" if ours is None or theirs is None else "yes" if ours >= theirs else "no"
            add(f"{title}: our fastest setting is at least as fast as Python's", {"ours": ours, "Python": theirs}, decision)
        if "compute-sanitizer" in self.steps:
            add("no kernel of ours accesses memory that it must not", {}, "yes" if self.steps["compute-sanitizer"] else "no")
        return rows


def kill_session(session):
    """Kills the processes of a session, also those in process groups of their own, such as the commands of `timeout`."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, (_, _, _, of_process) = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()[:4]
            if int(of_process) == session:
                os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            pass  # it has ended


class Kit:
    def __init__(self, arguments):
        self.arguments = arguments
        self.figures = {}
        self.deadline = None  # of a part for a lent machine
        self.results = {"time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "steps": [],
                        "kit": json.loads((KIT / "kit.json").read_text())}

    def beside_results(self, ending):
        return self.arguments.results.with_name(f"{self.arguments.results.stem}_{ending}")

    def save(self):
        self.arguments.results.write_text(json.dumps(self.results, indent=1) + "\n")
        if "day1" in self.arguments.parts:
            steps = {step["name"]: step["status"] == "passed" for step in self.results["steps"]}
            decisions = Decisions(steps, self.figures).all()
            self.beside_results("decisions.json").write_text(json.dumps(decisions, indent=1) + "\n")

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

    def step(self, name, command, cwd=KIT, limit=LIMIT_SECONDS):
        """Runs a command; its output is shown if it fails. Returns whether it succeeded. A part for a lent machine ends the command at its
        deadline, and does not start one with less than ten seconds left."""
        print(f"{name} ...", end=" ", flush=True)
        start = time.monotonic()
        if self.deadline is not None:
            limit = min(limit, self.deadline - start)
            if limit < 10:
                print("not started, because no time is left", flush=True)
                return False
        with subprocess.Popen([str(word) for word in command], cwd=cwd, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=limit)
                status = "passed" if process.returncode == 0 else f"failed with {process.returncode}"
            except subprocess.TimeoutExpired:
                kill_session(process.pid)
                output, _ = process.communicate()
                status = f"killed after {limit:.0f} s"
            except BaseException:
                kill_session(process.pid)
                raise
        seconds = round(time.monotonic() - start, 1)
        print(f"{status}, {seconds} s", flush=True)
        if status != "passed":
            print(output, flush=True)
        self.results["steps"].append({"name": name, "command": [str(word) for word in command], "status": status, "seconds": seconds,
                                      "output": output[-20000:]})
        folder = self.beside_results("output")
        folder.mkdir(exist_ok=True)
        (folder / f"{len(self.results['steps']):02}_{name.replace(' ', '_')}.txt").write_text(output)
        self.save()
        return status == "passed"

    def train(self, device):
        with tempfile.TemporaryDirectory(prefix="trainer-kit-") as folder:
            return self.step(f"training on {device}", [TRAINER, "--config", KIT / "configs/quickstart.yaml", "--run-dir", f"{folder}/run",
                                                       "training.epochs=1", f"runtime.device={device}"])

    def python(self, name, *arguments, **options):
        return self.step(name, [self.arguments.python, *arguments], **options)

    def bench(self, name, *arguments, **options):
        """Measures cases of bench/gpu.py, and adds the figures to self.figures as far as they were written."""
        output = self.beside_results(f"{name.replace(' ', '_')}.json")
        passed = self.python(name, KIT / "bench/gpu.py", "--bin", BIN, "--output", output, *arguments, **options)
        if output.exists():
            self.figures.setdefault("results", {}).update(json.loads(output.read_text())["results"])
            self.save()
        return passed

    def gpu_test(self, name="gpu_test", wrapper=(), tests="*", **options):
        return self.step(name, [*wrapper, BIN / "gpu_test", "--gtest_brief=1", f"--gtest_filter={tests}"], **options)

    def day(self, part):
        """The steps of a part for a lent machine, the most important ones first. Later ones may find no time."""
        self.deadline = (self.deadline or self.began) + DAY_SECONDS[part]
        tests = KIT / "tests" / "gpu"
        if part == "day1":
            passed = self.train("cuda")
            passed = self.gpu_test(limit=100) and passed
            for case in (Decisions.SMALL, Decisions.LARGE):
                left = self.deadline - time.monotonic()
                minutes = round(min(150, left - 20) / 60, 2)
                passed = self.bench(f"bench of {case.split()[0]}", "--cases", case, "--minutes", minutes, "--seconds", 0.5, limit=170) and passed
            passed = self.python("bits of a graph", tests / "test_repeats.py", "RepeatsTest.test_steps_of_a_graph", limit=60) and passed
            if sanitizer := shutil.which("compute-sanitizer"):
                passed = self.gpu_test("compute-sanitizer", [sanitizer, "--error-exitcode", "9"], "Gpu.Fused*") and passed
            return passed
        passed = self.python("losses", tests / "test_losses.py", limit=80)
        passed = self.python("refusals", tests / "test_refusals.py", limit=40) and passed
        for case in ("EfficientNet-B0.*", "ViT.*", "ConvNeXt.*", ".*Muon"):
            self.bench(f"bench of {case}".replace(".*", ""), "--cases", case, "--minutes", 2, "--rounds", 2, "--seconds", 0.3, limit=45)
        if ncu := shutil.which("ncu"):
            self.gpu_test("ncu", [ncu, "--kernel-name", "regex:moments|normalise|gradient_sums|input_gradient", "--launch-count", 8], "Gpu.Fused*")
        return passed

    def run(self):
        self.began = time.monotonic()
        self.prepare()
        days = [part for part in DAY_SECONDS if part in self.arguments.parts]
        if days:
            if self.no_gpu:
                raise Refusal(f"no GPU: {self.no_gpu}")
            passed = all([self.day(part) for part in days])
            if "day1" in days:
                print(self.beside_results("decisions.json").read_text())
            return 0 if passed else 1
        passed = self.train("cpu")
        if self.no_gpu:
            raise Refusal(f"no GPU: {self.no_gpu}")
        parts = set(self.arguments.parts)
        if "all" in parts:
            parts |= {"tests", "bench"}
        if parts & {"quick", "tests"}:
            passed = self.gpu_test() and passed
            passed = self.train("cuda") and passed
        for name in TESTS:
            if parts & {"tests", name}:
                passed = self.python(name, KIT / "tests" / "gpu" / f"test_{name}.py") and passed
        if "bench" in parts:
            passed = self.bench("bench") and passed
            print(self.results["steps"][-1]["output"])
        return 0 if passed else 1


def main():
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__, epilog=TEXT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", default=["quick"], help="one or more of the parts below; default: quick")
    parser.add_argument("--python", default="python3", help="the Python whose torch package is used; default: %(default)s")
    parser.add_argument("--results", type=pathlib.Path, help="the file to write; default: results.json, or day1.json, day2.json")
    arguments = parser.parse_args()
    if arguments.results is None:
        arguments.results = pathlib.Path(next((f"{part}.json" for part in DAY_SECONDS if part in arguments.parts), "results.json"))
    unknown = [part for part in arguments.parts if part not in ("quick", "tests", "bench", "all", *DAY_SECONDS, *TESTS)]
    if unknown:
        parser.error(f"unknown part {unknown[0]}; --help lists the parts")
    kit = Kit(arguments)
    # Ends the command that is running, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
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
