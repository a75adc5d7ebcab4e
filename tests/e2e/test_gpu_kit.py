"""The kit for machines with a GPU, in a root folder of a newer Debian with only Python and the torch package, without a network or a
driver; also on this machine, on a GPU that tests/fake_cuda imitates. TRAINER_BUILD_DIR is the build; TRAINER_FAKE_CUDA names the libraries
that are preloaded."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "testing"))
from debian_roots import copy_root, needs_roots, run_checked, run_inside  # noqa: E402

RELEASE, PYTHON = "trixie", "3.13"
VENV = ROOT / ".deps" / "venv"
# The packages without compiled code that `import torch` needs.
PURE_PACKAGES = ["filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "sympy", "typing_extensions.py"]


def setUpModule():
    needs_roots("patchelf")
    if not list(VENV.glob("lib/python3*/site-packages/nvidia/cublas*")) and not list(VENV.glob("lib/python3*/site-packages/nvidia/cudnn")):
        raise unittest.SkipTest("the CUDA libraries are missing: scripts/setup.sh --parity fetches them")


class GpuKitTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-gpu-kit-")
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name, "root")
        run_checked([ROOT / "scripts" / "gpu_kit.sh", "--output", pathlib.Path(folder.name, "kit")])
        copy_root(RELEASE, cls.root, ("python3",))
        packages = cls.root / "usr" / "local" / "lib" / f"python{PYTHON}" / "dist-packages"
        cls.version = json.loads(pathlib.Path(folder.name, "kit", "kit.json").read_text())["torch"]
        run_checked([VENV / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile",
                     "--no-cache-dir", "--target", packages, "--python-version", PYTHON, "--only-binary=:all:", f"torch=={cls.version}"])
        [installed] = VENV.glob("lib/python3*/site-packages")
        for name in PURE_PACKAGES:
            copy = shutil.copytree if (installed / name).is_dir() else shutil.copy
            copy(installed / name, packages / name)
        shutil.move(pathlib.Path(folder.name, "kit"), cls.root / "kit")
        # The folder for NVIDIA's libraries, which are mounted there in the mount namespace of each command.
        (packages / "nvidia").mkdir()
        cls.nvidia = installed / "nvidia", packages / "nvidia"

    def inside(self, command):
        return run_inside(self.root, command, [self.nvidia])

    def test_everything_works_up_to_the_missing_gpu(self):
        run = self.inside("/kit/run.sh all")
        self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
        self.assertIn("Debian GNU/Linux 13", run.stdout)
        self.assertIn("training on cpu ... passed", run.stdout)
        self.assertIn("no GPU: no NVIDIA driver (libcuda.so.1) is installed here", run.stdout)
        results = json.loads((self.root / "tmp" / "results.json").read_text())
        self.assertEqual([(step["name"], step["status"]) for step in results["steps"]], [("training on cpu", "passed")])
        self.assertEqual(results["machine"]["gpus"], [])
        # The other programs of the kit start too.
        start = "LD_LIBRARY_PATH=$(python3 -c \"import torch; print(torch.__path__[0])\")/lib"
        self.assertIn("SKIPPED", self.inside(f"{start} /kit/bin/gpu_test").stdout)
        self.assertIn("--network is required", self.inside(f"{start} /kit/bin/bench_step").stderr)
        bench = self.inside("/kit/bench/gpu.sh --bin /kit/bin")
        self.assertEqual(bench.returncode, 2, bench.stdout + bench.stderr)
        self.assertIn("no GPU", bench.stdout + bench.stderr)

    def test_on_an_imitated_gpu(self):
        """The tests run to their end. Those that compare values fail, because an imitated GPU does not compute."""
        results = self.root / "tmp" / "imitated.json"
        variables = {"LD_PRELOAD": os.environ["TRAINER_FAKE_CUDA"], "FAKE_CUDA_FOLDER": str(self.root / "tmp")}
        run = subprocess.run([self.root / "kit" / "run.sh", "refusals", "--python", VENV / "bin" / "python", "--results", results],
                             env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertIn("GPUs     Fake H100", run.stdout)
        steps = {step["name"]: step for step in json.loads(results.read_text())["steps"]}
        self.assertEqual(list(steps), ["training on cpu", "refusals"])
        self.assertEqual(steps["training on cpu"]["status"], "passed")
        self.assertRegex(steps["refusals"]["output"], r"\nRan \d+ tests in ")

    def test_a_lent_machine_that_is_taken_back(self):
        """What was measured before is decided, and no process is left."""
        results = self.root / "tmp" / "day.json"
        decisions = results.with_name("day_decisions.json")
        variables = {"LD_PRELOAD": os.environ["TRAINER_FAKE_CUDA"], "FAKE_CUDA_FOLDER": str(self.root / "tmp")}
        with subprocess.Popen([self.root / "kit" / "run.sh", "day1", "--python", VENV / "bin" / "python", "--results", results],
                              env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
            printed = ""
            while not printed.endswith("bench of "):
                character = run.stdout.read(1)
                self.assertNotEqual(character, "", printed)
                printed += character
            time.sleep(2)
            run.terminate()
            printed += run.stdout.read()
            self.assertEqual(run.wait(timeout=60), 143, printed)
        # An imitated GPU computes no values.
        self.assertEqual([row["decision"] for row in json.loads(decisions.read_text())], ["no", "open", "open", "open"])
        self.assertIn("[  PASSED  ] 5 tests.", (self.root / "tmp" / "day_output" / "02_gpu_test.txt").read_text())
        steps = {step["name"]: step["status"] for step in json.loads(results.read_text())["steps"]}
        self.assertEqual(list(steps), ["training on cuda", "gpu_test"])
        self.assertEqual(steps["training on cuda"], "passed")
        self.assertEqual(subprocess.run(["pgrep", "--full", f"{self.root}/kit/b"], capture_output=True).stdout, b"")

    def test_a_libtorch_that_does_not_fit(self):
        for python, reason in (("raise ImportError(\"no module\")",
                                f"cannot import torch: ImportError: no module; install torch {self.version}, or name another Python with --python"),
                               ("__version__ = \"1.13.1\"; __path__ = [\"/\"]\nclass version: cuda = \"11\"",
                                f"has torch 1.13.1, but the kit was built for {self.version}; name another Python with --python")):
            (self.root / "other").mkdir(exist_ok=True)
            (self.root / "other" / "torch.py").write_text(python + "\n")
            run = self.inside("PYTHONPATH=/other /kit/run.sh")
            self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
            self.assertIn(reason, run.stdout)


if __name__ == "__main__":
    unittest.main()
