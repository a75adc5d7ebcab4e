"""The CPU image built by scripts/container.sh, in containers, and the .deb of the build TRAINER_BUILD_DIR, in a bare Debian."""

import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from equal_runs import needs  # noqa: E402
from slurm_rig import SlurmRig, missing_programs  # noqa: E402
from troubleshooting import plants  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = "docker.io/library/debian:bookworm-slim"
IMAGE = "localhost/trainer:test"
USER = 1000
# The limits are set, because Podman's default limits are higher than those that a container inside a container may set.
LIMITS = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"]
# With these settings a step takes a fraction of a second.
SETTINGS = ["model={name: demo_conv, num_classes: 10}", "dataloader.global_batch_size=100"]
ENDLESS = "training.epochs=100000"


def enter_namespace():
    """Re-executes in a new mount namespace, so that mounts end with this process, and mounts control groups of version 2 there, because the
    container runtime does not support a mixture of versions. tini reaps podman's monitors, for which podman would wait 20 seconds."""
    if "TRAINER_TEST_NAMESPACE" not in os.environ:
        os.execvpe("unshare", ["unshare", "--mount", "tini", "-s", "--", sys.executable, *sys.argv], {**os.environ, "TRAINER_TEST_NAMESPACE": "1"})
    groups = pathlib.Path("/sys/fs/cgroup")
    if not (groups / "cgroup.controllers").exists():
        subprocess.run(["umount", "--recursive", groups], check=True)
        subprocess.run(["mount", "-t", "cgroup2", "none", groups], check=True)


@unittest.skipUnless(os.geteuid() == 0, "only root can create containers")
class ContainerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        needs([program for program in ("buildah", "podman", "debootstrap", "tini") if not shutil.which(program)])
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="trainer-container-"))
        cls.addClassCleanup(cls.clean_up)
        (cls.work / "tmp").mkdir()
        config = cls.work / "storage.conf"
        file_system = subprocess.run(["stat", "--file-system", "--format=%T", cls.work], capture_output=True, text=True, check=True).stdout
        driver = "vfs" if file_system.startswith("overlay") else "overlay"  # overlays cannot be nested
        config.write_text(f'[storage]\ndriver = "{driver}"\ngraphroot = "{cls.work}/store"\nrunroot = "{cls.work}/run"\n')
        cls.env = {**os.environ, "CONTAINERS_STORAGE_CONF": str(config), "TMPDIR": str(cls.work / "tmp")}
        build = subprocess.run([ROOT / "scripts/container.sh", "--tag", IMAGE], env=cls.env, capture_output=True, text=True)
        assert build.returncode == 0, build.stderr[-5000:]
        print(*(line for line in build.stderr.splitlines() if line.startswith("== ")), build.stdout, sep="\n")

    @classmethod
    def clean_up(cls):
        cls.podman("rm", "--all", "--force")
        # Waits for the processes with which podman cleans up after a container, because they use the storage.
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and subprocess.run(["pgrep", "--full", cls.work], stdout=subprocess.DEVNULL).returncode == 0:
            time.sleep(0.1)
        subprocess.run(["umount", "--recursive", "--lazy", cls.work / "store/overlay"], stderr=subprocess.DEVNULL)
        shutil.rmtree(cls.work)

    @classmethod
    def podman_command(cls, *args):
        return ["podman", "--cgroup-manager=cgroupfs", "--tmpdir", str(cls.work / "libpod"), *args]

    @classmethod
    def podman(cls, *args):
        return subprocess.run(cls.podman_command(*args), env=cls.env, capture_output=True, text=True)

    @classmethod
    def container(cls, *args):
        """The command that runs a container."""
        return cls.podman_command("run", "--rm", "--cgroups=disabled", "--no-healthcheck", *LIMITS, *args)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-container-runs-")
        self.addCleanup(folder.cleanup)
        self.runs = pathlib.Path(folder.name)
        os.chown(self.runs, USER, USER)
        self.name = self.id().rpartition(".")[2]

    def command(self, *args, options=(), read_only=True):
        """The command that runs the image with a very small /dev/shm and, unless `read_only` is False, with a read-only root."""
        shared = ["--read-only", "--tmpfs=/tmp"] if read_only else []
        return self.container("--name", self.name, "--network=none", "--shm-size=64k", *shared, *options, IMAGE, *args)

    def run_in_container(self, *args, **options):
        return subprocess.run(self.command(*args, **options), env=self.env, capture_output=True, text=True, timeout=120)

    def start(self, *args, **options):
        """Returns when training has started."""
        # The output goes to a file, because podman blocks when a pipe is full.
        log = self.runs.with_suffix(".log")
        self.addCleanup(log.unlink)
        with log.open("w") as stderr:
            process = subprocess.Popen(self.command(*args, **options), env=self.env, stderr=stderr)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(self.podman, "kill", self.name)
        deadline = time.monotonic() + 60
        while "\nepoch " not in log.read_text():
            self.assertTrue(process.poll() is None and time.monotonic() < deadline, f"it does not train:\n{log.read_text()}")
            time.sleep(0.1)
        return process

    def train(self, *settings, config="/configs/quickstart.yaml"):
        return ["--config", config, "logging.every_steps=1", *SETTINGS, *settings]

    def processes(self):
        """The launcher and its ranks."""
        launcher = int(self.podman("inspect", "--format", "{{.State.Pid}}", self.name).stdout)
        return [launcher, *map(int, pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split())]

    def check_health(self):
        """The exit code and the output of the image's health check."""
        check = self.podman("exec", self.name, "healthcheck.sh")
        return check.returncode, check.stdout + check.stderr

    def test_an_experiment_file_of_ones_own_in_a_mounted_folder(self):
        (self.runs / "my.yaml").write_text((ROOT / "configs/quickstart.yaml").read_text().replace("datasets/", "/datasets/"))
        mounted = [f"--volume={self.runs}:/work", "--workdir=/work"]
        run = self.run_in_container(*self.train("training.epochs=1", config="my.yaml"), options=mounted)
        self.assertEqual(run.returncode, 0, run.stderr)
        for command, output in ((["report", "runs/quickstart"], "report.html"),
                                (["export", "--checkpoint", "runs/quickstart/checkpoints/best.pt", "--format", "onnx", "--output", "x.onnx"], "x.onnx")):
            run = self.run_in_container(*command, options=mounted)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertTrue((self.runs / output).exists(), output)

    def test_stops_and_resumes_in_another_container(self):
        mounted = [f"--volume={self.runs}:/runs"]
        process = self.start(*self.train(ENDLESS), options=mounted)
        begin = time.monotonic()
        stop = self.podman("stop", "--time=10", self.name)
        self.assertEqual(stop.returncode, 0, stop.stderr)
        self.assertEqual(process.wait(20), 75)
        self.assertLess(time.monotonic() - begin, 10)
        run = self.runs / "quickstart"
        self.assertEqual(json.loads((run / "summary.json").read_text())["reason"], "stopped")
        self.assertIn("world_size 2", (run / "train.log").read_text())
        self.assertEqual((run / "train.log").stat().st_uid, USER)

        epochs = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["epoch"] + 2
        second = self.run_in_container(*self.train(f"training.epochs={epochs}"), options=mounted)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertRegex(second.stderr, r"resumes from runs/quickstart/checkpoints/step_\d+\.pt")
        self.assertEqual(json.loads((run / "summary.json").read_text())["reason"], "done")

    @plants("The folder for runs belongs to another user")
    def test_the_error_for_an_unwritable_folder_states_the_remedy(self, row):
        os.chown(self.runs, 0, 0)
        refused = self.run_in_container(*self.train(), options=[f"--volume={self.runs}:/runs"])
        row.check(self, refused.stderr, refused.returncode)
        self.assertIn("Permission denied: /runs belongs to user 0, but this process runs as user 1000 (choose another --run-dir; chown -R 1000 /runs "
                      "gives it to this user; to run a container as its owner, use --user 0:0)", refused.stderr)
        as_owner = self.run_in_container(*self.train("training.epochs=1"), options=[f"--volume={self.runs}:/runs", "--user=0:0"])
        self.assertEqual(as_owner.returncode, 0, as_owner.stderr)

    @plants("A container's root is read-only, and no folder for runs is mounted")
    def test_the_error_for_a_read_only_root_states_the_remedy(self, row):
        refused = self.run_in_container(*self.train())
        row.check(self, refused.stderr, refused.returncode)
        self.assertIn("--volume FOLDER:/runs)", refused.stderr)

    def test_runs_are_kept_in_the_container_without_a_mount(self):
        run = self.run_in_container(*self.train("training.epochs=1"), read_only=False)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_the_health_check_finds_a_stopped_process(self):
        process = self.start(*self.train(ENDLESS), options=[f"--volume={self.runs}:/runs"])
        self.assertEqual(self.check_health(), (0, ""))
        for stopped in self.processes():
            os.kill(stopped, signal.SIGSTOP)
            code, output = self.check_health()
            os.kill(stopped, signal.SIGCONT)
            self.assertEqual(code, 1, output)
            self.assertRegex(output, r"^unhealthy: process \d+ is stopped\n$")
        self.assertEqual(self.check_health(), (0, ""))
        self.assertIsNone(process.poll())

    def test_the_health_check_finds_an_idle_process(self):
        sleep = [f"--volume={shutil.which('sleep')}:/opt/trainer/bin/trainer:ro", "--entrypoint=trainer", "--detach"]
        self.run_in_container("60", options=sleep)
        self.addCleanup(self.podman, "kill", self.name)
        self.assertEqual(self.check_health(), (1, "unhealthy: process 1 has not run for 5 seconds\n"))

    def test_content_of_the_image(self):
        def output(script):
            run = self.run_in_container("-c", script, options=["--entrypoint=sh"])
            self.assertEqual(run.returncode, 0, run.stderr)
            return run.stdout.splitlines()

        found = output("ldd /opt/trainer/bin/trainer /opt/trainer/lib/trainer/*.so /opt/trainer/lib/trainer/torch/lib/*; find / -xdev -type f 2>/dev/null; true")
        self.assertEqual([line for line in found if "not found" in line], [])
        files = {pathlib.PurePath(line) for line in found if line.startswith("/")}
        names = {file.name for file in files}
        self.assertIn("libtorch_cpu.so", names)
        for compiler in ("g++", "gcc", "cc1plus", "as", "ld", "cmake", "ninja", "python3"):
            self.assertNotIn(compiler, names)
        self.assertEqual([name for name in names if name.startswith(("libtorch_cuda", "libtrainer_cuda", "libcublas", "libcudnn", "libnccl"))], [])
        documents = pathlib.PurePath("/opt/trainer/share/doc/trainer")
        self.assertIn(documents / "THIRD_PARTY_NOTICES.md", files)
        self.assertTrue(any(file.match("licences/torch-*/licenses/LICENSE") for file in files))
        self.assertTrue(any(file.match("licences/nvidia_cuda_runtime-*/licenses/License.txt") for file in files))
        self.assertEqual(output("id -u; id -g"), [str(USER), str(USER)])

        config = json.loads(self.podman("image", "inspect", IMAGE).stdout)[0]
        self.assertEqual(config["Labels"]["org.opencontainers.image.licenses"], "Apache-2.0")
        self.assertEqual(config["Healthcheck"]["Test"], ["CMD", "healthcheck.sh"])
        self.assertIn("NVIDIA_VISIBLE_DEVICES=", config["Config"]["Env"])

    def test_slurm_tasks_in_containers(self):
        needs(missing_programs())
        folder = tempfile.TemporaryDirectory(prefix="trainer-container-slurm-")
        self.addCleanup(folder.cleanup)
        rig = SlurmRig(folder.name)
        self.addCleanup(rig.stop)
        rig.start()
        log = pathlib.Path(folder.name) / "job.log"
        trainer = self.container("--network=host", "--env=SLURM_*", f"--volume={self.runs}:/runs", IMAGE, "train")
        job = rig.submit("--ntasks-per-node=2", "--gpus-per-node=2", "--cpus-per-task=1", f"--output={log}", ROOT / "scripts/slurm/train.sbatch",
                         *self.train("training.epochs=1"), cwd=folder.name, TRAINER=" ".join(trainer),
                         CONTAINERS_STORAGE_CONF=self.env["CONTAINERS_STORAGE_CONF"])
        self.assertEqual(rig.end(job), ("COMPLETED", 0), log.read_text())
        told = (self.runs / "quickstart/train.log").read_text()
        self.assertIn("rank 0 of 2 (local rank 0 of 2), from SLURM_PROCID", told)
        self.assertIn("world_size 2", told)
        self.assertEqual(json.loads((self.runs / "quickstart/summary.json").read_text())["reason"], "done")

    def test_the_debian_package_is_complete(self):
        subprocess.run(["cpack", "--config", f"{os.environ['TRAINER_BUILD_DIR']}/CPackConfig.cmake", "-G", "DEB", "-B", self.work / "packages",
                        "-D", "CPACK_COMPONENTS_ALL=trainer"], check=True, stdout=subprocess.DEVNULL)
        steps = ["apt-get update", "apt-get install -y --no-install-recommends /packages/trainer_*.deb", "cd /usr/share/trainer",
                 "trainer launch " + " ".join(map(shlex.quote, self.train("training.epochs=1", config="configs/quickstart.yaml")))]
        command = self.container("--network=host", f"--volume={self.work}/packages:/packages:ro", BASE, "sh", "-euc", "\n".join(steps))
        installed = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=300)
        self.assertEqual(installed.returncode, 0, installed.stdout + installed.stderr)
        self.assertIn("world_size 2", installed.stderr)

    def test_other_commands(self):
        version = self.run_in_container("--version")
        self.assertRegex(version.stdout, r"^trainer \d+\.\d+\.\d+ \([0-9a-f]{7}")
        self.assertIn("resnet18", self.run_in_container("list", "models").stdout)


if __name__ == "__main__":
    if os.geteuid() == 0 and shutil.which("tini"):
        enter_namespace()
    unittest.main()
