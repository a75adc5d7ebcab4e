"""scripts/setup.sh and the build of scripts/common.sh when they are interrupted, offline, started twice or in a read-only checkout. A small
wheel from a local folder replaces LibTorch, and dpkg-query reports that every package is installed."""

import base64
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import zipfile

SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "scripts"
# Many files, so that their installation can be interrupted.
NUM_FILES = 3000


def make_wheel(folder):
    files = {f"torch/lib/part_{i}.txt": b"part" for i in range(NUM_FILES)} | {"torch/lib/libtorch_cpu.so": b"library"}
    files["stands_for_torch-1.0.dist-info/METADATA"] = b"Metadata-Version: 2.1\nName: stands-for-torch\nVersion: 1.0\n"
    files["stands_for_torch-1.0.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    digest = lambda data: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()  # noqa: E731
    record = [f"{name},sha256={digest(data)},{len(data)}" for name, data in files.items()] + ["stands_for_torch-1.0.dist-info/RECORD,,"]
    files["stands_for_torch-1.0.dist-info/RECORD"] = "\n".join(record).encode()
    with zipfile.ZipFile(folder / "stands_for_torch-1.0-py3-none-any.whl", "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)


class SetupTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-setup-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = self.folder / "it's here"
        self.requirements = self.root / "scripts" / "requirements" / "libtorch-1.10"
        self.requirements.mkdir(parents=True)
        for script in ("setup.sh", "common.sh"):
            shutil.copy(SCRIPTS / script, self.root / "scripts")
        (self.requirements / "torch.txt").write_text("stands-for-torch==1.0\n")
        wheels, self.tools = self.folder / "wheels", self.folder / "tools"
        wheels.mkdir()
        self.tools.mkdir()
        make_wheel(wheels)
        self.add_tool("dpkg-query", 'for argument; do echo "installed $argument"; done')
        self.environment = os.environ | {"PATH": f"{self.tools}:{os.environ['PATH']}", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
        for name in ("TRAINER_LIBTORCH", "TRAINER_TORCH_DIR"):
            self.environment.pop(name, None)
        self.deps = self.root / ".deps"

    def add_tool(self, name, text):
        (self.tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (self.tools / name).chmod(0o755)

    def start(self, *before, options=()):
        """Starts setup.sh in a process group of its own."""
        return subprocess.Popen([*before, str(self.root / "scripts" / "setup.sh"), *options], env=self.environment, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)

    def assert_complete(self, process):
        output = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 0, output)
        self.assertEqual(len(list((self.deps / "torch" / "lib").iterdir())), NUM_FILES + 1)
        return output

    def interrupt_when(self, pattern):
        """Starts a set-up, and kills it as soon as a file matches `pattern`."""
        process = self.start()
        while process.poll() is None and not any(self.deps.glob(pattern)):
            time.sleep(0.005)
        self.assertIsNone(process.poll(), "the set-up has ended before it could be interrupted")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def test_an_interrupted_set_up_is_completed_by_the_next_one(self):
        self.interrupt_when("venv/bin/python")
        self.interrupt_when("venv/lib/python3*/site-packages/torch/lib/part_10.txt")
        self.assertIn("an earlier set-up was interrupted", self.assert_complete(self.start()))

    def test_wheels_that_cannot_be_fetched_leave_the_others(self):
        self.assert_complete(self.start())
        (self.requirements / "cuda.txt").write_text("not-there==1.0\n")
        process = self.start(options=["--cuda"])
        output = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("the wheels of scripts/requirements/libtorch-1.10/cuda.txt could not be downloaded", output)
        self.assertEqual(self.assert_complete(self.start()), "")
        # The kernel may kill pip when memory runs out.
        python = self.deps / "venv" / "bin" / "python"
        python.rename(python.with_name("real-python"))
        python.write_text("#!/bin/bash\nkill -KILL $$\n")
        python.chmod(0o755)
        process = self.start(options=["--cuda"])
        self.assertIn("could not be downloaded", process.communicate(timeout=120)[1])
        self.assertIn("an earlier set-up was interrupted", self.assert_complete(self.start()))

    def test_another_version_of_libtorch(self):
        shutil.copytree(self.requirements, self.requirements.with_name("libtorch-1.9"))
        (self.requirements.with_name("libtorch-1.9") / "torch.txt").write_text("# an older one\nstands-for-torch==1.0\n")
        for version, used in (("", "1.10"), ("1.9", "1.9"), ("1.10", "1.10")):
            self.environment["TRAINER_LIBTORCH"] = version
            self.assertIn(f"downloading libtorch-{used}/torch", self.assert_complete(self.start()))
        self.environment["TRAINER_LIBTORCH"] = "1.1"
        process = self.start()
        self.assertIn("TRAINER_LIBTORCH=1.1 is not a version that the project is tested with\nsetup: set it to one of 1.9 1.10\n", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 1)

    def test_two_at_once_and_a_read_only_checkout(self):
        first, second = self.start(), self.start()
        outputs = [self.assert_complete(process) for process in (first, second)]
        self.assertEqual(sum("waiting for another set-up or build" in output for output in outputs), 1, outputs)
        self.assertEqual(sum("downloading libtorch-1.10/torch" in output for output in outputs), 1, outputs)
        if os.getuid() != 0:
            self.skipTest("only root can make a folder read-only for this test")
        read_only = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2"'
        self.assertEqual(self.assert_complete(self.start("unshare", "--mount", "bash", "-c", read_only, "bash", str(self.root))), "")

    def test_a_folder_that_the_build_cannot_handle(self):
        for name in ("a$b", "a;b", 'a"b', "a#b"):
            with self.subTest(name):
                shutil.copytree(self.root, self.folder / name)
                self.root = self.folder / name
                process = self.start()
                self.assertIn(f"the folder {self.root} has a name that CMake and ccache do not handle", process.communicate(timeout=60)[1])
                self.assertEqual(process.returncode, 2)
                self.root = self.folder / "it's here"

    def test_a_killed_build_ends_its_compilers(self):
        self.add_tool("ninja", 'trap "echo ended >>ended; kill %1; exit" TERM\ntouch started\nsleep 60 &\nwait')
        self.deps.mkdir()
        build = subprocess.Popen(["bash", "-c", f'source "{SCRIPTS}/common.sh"; root=$PWD; build_targets'], env=self.environment, cwd=self.root)
        while not (self.root / "started").exists():
            self.assertIsNone(build.poll())
            time.sleep(0.01)
        build.kill()
        build.wait()
        deadline = time.monotonic() + 30
        while not (self.root / "ended").exists():
            self.assertLess(time.monotonic(), deadline, "ninja still runs")
            time.sleep(0.01)

    def test_launch_with_closed_descriptors(self):
        shutil.copy(SCRIPTS / "launch.sh", self.root / "scripts")
        program = self.root / "build" / "release" / "bin" / "trainer"
        program.parent.mkdir(parents=True)
        for name in ("cmake", "src", "models", "datasets", "CMakeLists.txt"):
            (self.root / name).touch()
        program.write_text('#!/bin/bash\necho "$@" >"$(dirname "$0")/arguments"\n')
        program.chmod(0o755)
        self.add_tool("ninja", "")
        self.add_tool("cmake", "")
        for closed in ("<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"):
            arguments = program.with_name("arguments")
            arguments.unlink(missing_ok=True)
            command = ["bash", "-c", f'"$1" --config x {closed}', "-", str(self.root / "scripts" / "launch.sh")]
            run = subprocess.run(command, env={**self.environment, "CI": ""}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
            self.assertEqual(run.returncode, 0, (closed, run.stderr))
            self.assertEqual(arguments.read_text(), "launch --config x\n", closed)


if __name__ == "__main__":
    unittest.main()
