"""`trainer launch` with real processes. TRAINER_BINARY is the program."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from launches import ranks_of  # noqa: E402
from program import BINARY, LINEAR, ROOT, FolderCase, events  # noqa: E402

QUICKSTART = ROOT / "configs" / "quickstart.yaml"


def start(*args, **options):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([BINARY, "launch", *map(str, args)], cwd=ROOT, **pipes, **options)


def launch(*args, **options):
    process = start(*args, **options)
    process.out, process.err = process.communicate(timeout=120)
    return process


def children(process):
    """The launcher's children as folders of /proc, in the order of their start."""
    return [pathlib.Path("/proc") / str(pid) for pid in ranks_of(process)]


def environment(child):
    return dict(variable.split("=", 1) for variable in (child / "environ").read_text().rstrip("\0").split("\0"))


class LaunchTest(FolderCase):
    def start_training(self, **options):
        """Starts two ranks that train without end; returns when training has started."""
        process = start("--nproc-per-node", 2, "--config", LINEAR, "training.epochs=1000000", "--run-dir", self.run_dir, **options)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if line.startswith("epoch 1"):
                return process
        self.fail("it does not train")

    def test_another_program(self):
        run = launch("--nproc-per-node", 2, "--no-python", "sh", "-c", 'echo "$0 $RANK/$WORLD_SIZE"', "--gpus")
        self.assertEqual((run.returncode, sorted(run.out.split("\n"))), (0, ["", "--gpus 0/2", "--gpus 1/2"]), run.err)
        run = launch("--no-python", "./absent")
        self.assertEqual(run.returncode, 2)
        self.assertRegex(run.err, r"^error: --no-python \./absent: this program cannot be started: .*; give the path of a program\n$")

    def test_two_ranks_are_one_run(self):
        run = launch("--config", QUICKSTART, "training.epochs=1", "dataloader.global_batch_size=500", "logging.every_steps=2", "--run-dir",
                     self.run_dir, "--progress", "plain", env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(run.returncode, 0, run.err)
        for line in ("training  1 epoch ", "step 2/4", "step 4/4", "validation  epoch 1/1", "done  4 steps"):
            self.assertEqual(run.err.count(line), 1, run.err)
        self.assertEqual([event["num_samples"] for event in events(self.run_dir, "validation")], [500])
        self.assertEqual(json.loads((self.run_dir / "environment.json").read_text())["world_size"], 2)

    def test_three_ranks_share_a_batch_of_fifty(self):
        run = launch("--nproc-per-node", "3", "--config", QUICKSTART, "training.epochs=1", "dataset.validation_split=0.9", "--run-dir", self.run_dir,
                     env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(run.returncode, 0, run.err)
        self.assertIn("global_batch_size 50  world_size 3", run.err)

    def test_environment_of_the_ranks(self):
        foreign = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "5", "TORCHELASTIC_USE_AGENT_STORE": "True", "SLURM_PROCID": "3"}
        inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        process = self.start_training(env={**inherited, **foreign, "TRAINER_TEST_HANDED_ON": "yes"})
        ranks = children(process)
        environments = [environment(rank) for rank in ranks]
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
        self.assertEqual([[variables[name] for name in names] for variables in environments],
                         [["0", "2", "0", "2", "127.0.0.1"], ["1", "2", "1", "2", "127.0.0.1"]])
        self.assertEqual(environments[0]["MASTER_PORT"], environments[1]["MASTER_PORT"])
        for variables in environments:
            self.assertEqual(variables["TRAINER_TEST_HANDED_ON"], "yes")
            for name in ("TORCHELASTIC_USE_AGENT_STORE", "SLURM_PROCID", "OMP_NUM_THREADS"):
                self.assertNotIn(name, variables)
        for rank in ranks:
            self.assertEqual(os.readlink(rank / "fd" / "0"), "/dev/null")
            self.assertEqual(os.getpgid(int(rank.name)), int(rank.name))
            self.assertEqual(os.readlink(rank / "exe"), str(pathlib.Path(BINARY).resolve()))

    def test_a_start_without_open_descriptors_and_with_signals_ignored(self):
        """Starts without standard streams, as some daemons do. The run's sockets and files must not get the descriptors 0 to 2; its files
        have the permissions of the umask."""
        def forsake():
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            for descriptor in (0, 1, 2):
                os.close(descriptor)

        for launcher in ((), ("launch", "--nproc-per-node", "2")):
            with self.subTest(launcher=launcher):
                self.run_dir = self.run_dir.with_name(f"forsaken{len(launcher)}")
                args = [BINARY, *launcher, "--config", LINEAR, "training.epochs=2", "logging.command=[cat]", "--run-dir", self.run_dir]
                begin = time.monotonic()
                self.assertEqual(subprocess.run(args, cwd=ROOT, preexec_fn=forsake, umask=0o002, timeout=120).returncode, 0)
                # A program that kept SIGCHLD ignored would not learn of the end of `cat`, and would wait for it.
                self.assertLess(time.monotonic() - begin, 30)
                written = events(self.run_dir)
                self.assertEqual((written[0]["event"], written[-1]["event"]), ("start", "end"))
                for path in self.run_dir.rglob("*"):
                    self.assertEqual(path.stat().st_mode & 0o777, 0o775 if path.is_dir() else 0o664, path)

    def test_configuration_errors_are_reported_once(self):
        run = launch("--nproc-per-node", 2, "--config", LINEAR, "training.epochs=none", "--run-dir", self.run_dir)
        self.assertEqual(run.returncode, 2, run.err)
        self.assertEqual(run.err.count("training.epochs: expected an integer"), 1, run.err)
        self.assertRegex(run.err, r"error: rank \d \(process \d+\) ended with exit code 2\n")
        self.assertFalse(self.run_dir.exists())

    def test_command_lines(self):
        models = subprocess.run([BINARY, "list", "models"], capture_output=True, text=True).stdout
        for args, code, out, err in (
            (["--help"], 0, "--nproc-per-node", ""),
            (["--nproc-per-node", 1, "list", "models"], 0, models, ""),
            (["--nproc_per_node=2", "--", "list", "models"], 0, models, ""),
            (["--nproc-per-node=3", "list", "models"], 0, 3 * models, ""),
            ([], 2, "", "nothing to start; add --config FILE"),
            (["--"], 2, "", "nothing to start"),
            (["list", "modells"], 2, "", "modells"),
        ):
            with self.subTest(args=args):
                run = launch(*args)
                self.assertEqual(run.returncode, code, run.err)
                self.assertIn(out, run.out)
                self.assertIn(err, run.err)

    @unittest.skipIf(pathlib.Path("/proc/driver/nvidia/gpus").is_dir(), "this host has a GPU")
    def test_gpus_without_a_gpu(self):
        run = launch("--gpus", "0,1", "--config", LINEAR, "--run-dir", self.run_dir)
        self.assertEqual((run.returncode, run.err.count("\n")), (2, 1), run.err)
        self.assertIn("error: --gpus 0,1: this host has no NVIDIA GPU that this process may use", run.err)
        self.assertFalse(self.run_dir.exists())


if __name__ == "__main__":
    unittest.main()
