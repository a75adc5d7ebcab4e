"""Command lines, lists, data commands, and the libraries and settings of the program's processes. TRAINER_BINARY is the program;
TRAINER_OPENCV is 0 if it was built without OpenCV."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from launches import write_safetensors  # noqa: E402
from program import BINARY, LINEAR, ROOT, ProgramCase, start, trainer  # noqa: E402


class CommandsTest(ProgramCase):
    def test_command_lines(self):
        for args, code, text in (
            (["--help"], 0, "usage: trainer"),
            (["--version"], 0, "LibTorch "),
            (["train", "--help"], 0, "--run-dir"),
            (["list", "models"], 0, "resnet18"),
            (["list", "modells"], 2, "modells"),
            (["export", "--checkpoint", "absent.pt", "--format", "state_dict", "--output", "x.pt"], 5, "absent.pt"),
            (["export", "--checkpoint", "absent.pt", "--format", "tflite", "--output", "x.pt"], 2, "tflite"),
            (["tain"], 2, 'did you mean "train"?'),
            (["--config"], 2, "--config"),
            (["--confg", "x"], 2, "--confg is not an option; did you mean --config?"),
            ([LINEAR], 2, f"did you mean --config {LINEAR}?"),
            (["help"], 0, "usage: trainer"),
            (["help", "train"], 0, "--run-dir"),
            ([], 2, "usage: trainer"),
            (["config", "show", "--config", LINEAR, "seed=7"], 0, "seed: 7"),
            (["config", "reference"], 0, "weight_decay"),
        ):
            with self.subTest(args=args):
                run = trainer(*args)
                self.assertEqual(run.returncode, code, run.err)
                self.assertIn(text, run.out if code == 0 or not args else run.err)
        reference = trainer("config", "reference", "--format", "markdown").out
        self.assertEqual(reference, (ROOT / "docs" / "configuration.md").read_text())

    def test_a_stop_request_has_its_exit_code(self):
        # The command waits for more data from the pipe.
        for number, args in enumerate((["config", "show"], ["validate"], ["data", "check"])):
            pipe = self.folder / f"pipe{number}"
            os.mkfifo(pipe)
            process = start(*args, "--config", pipe)
            self.addCleanup(process.kill)
            with pipe.open("w"):
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, err), (75, "stopped on request\n"))

    def test_a_pipe_without_a_writer_is_refused(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        run = trainer("config", "show", "--config", pipe)
        self.assertEqual((run.returncode, run.err), (2, f"error: cannot read {pipe}: it is a pipe, and no program has opened it for writing\n"))

    def test_text_from_outside_does_not_reach_the_terminal_unchanged(self):
        title = "\x1b]0;title\x07"
        config = self.folder / "config.yaml"
        config.write_text('experiment: x\nmodel: {name: "\\e]0;title\\a"}\n')
        weights = self.folder / f"weights{title}.safetensors"
        write_safetensors(weights, {f"fc{title}\u009b": ([1], [0]), "Größe": ([1], [0])})
        for args, code in (
            (["--config", self.folder / f"absent{title}\r.yaml"], 2),
            (["--config", config], 2),
            (["--config", LINEAR, f"{title}=1"], 2),
            (["checkpoint", "info", weights], 0),
            ([f"tra{title}in"], 2),
            ([f"--conf{title}", "x"], 2),
            (["--config", LINEAR, f"model.init_from={title}", "--run-dir", self.folder / "run"], 2),
        ):
            with self.subTest(args=args):
                run = trainer(*args)
                self.assertEqual(run.returncode, code, run.err)
                self.assertIn(r"\x1b]0;title\x07", run.out + run.err)
                self.assertNotRegex(run.out + run.err, r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
        self.assertIn("Größe", trainer("checkpoint", "info", weights).out)

    def test_list_equals_the_reference(self):
        reference = (ROOT / "docs" / "configuration.md").read_text()
        for kind, heading in (
            ("models", "model, name:"),
            ("datasets", "dataset, name:"),
            ("transforms", "transform"),
            ("batch_transforms", "batch_transform"),
            ("samplers", "dataloader.sampler, name:"),
            ("optimizers", "optimizer, name:"),
            ("lr_schedulers", "lr_scheduler, name:"),
            ("losses", "loss, name:"),
        ):
            listed = [line.split(maxsplit=1) for line in trainer("list", kind).out.splitlines()]
            described = re.findall(rf"^## {heading} (\w+)\n\n(.+)$", reference, re.MULTILINE)
            self.assertEqual([tuple(entry) for entry in listed], described, kind)
            self.assertTrue(listed, kind)

    def test_data_show(self):
        picture = self.folder / "grid.png"
        run = trainer("data", "show", "--config", ROOT / "configs" / "quickstart.yaml", "--output", picture)
        if os.environ.get("TRAINER_OPENCV") == "0":
            self.assertEqual((run.returncode, "image files need OpenCV" in run.err), (2, True), run.err)
            return
        self.assertEqual(run.returncode, 0, run.err)
        self.assertEqual(picture.read_bytes()[:4], b"\x89PNG")
        self.assertEqual(run.out, f"{picture}: the first 64 of 2000 training images in epoch 0\n")
        run = trainer("data", "show", "--config", ROOT / "configs" / "quickstart.yaml", "dataloader.sampler={name: subset, count: 9}", "--output",
                      picture)
        self.assertEqual(run.out, f"{picture}: the first 9 of 9 training images in epoch 0\n")
        run = trainer("data", "show", "--config", LINEAR, "--output", picture)
        self.assertEqual((run.returncode, "are not images, so they cannot be shown" in run.err), (2, True), run.err)

    def test_data_download(self):
        # Existing files are not downloaded again: a download would fail, because these proxies do not exist.
        env = {**os.environ, "http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}
        sample = ROOT / "datasets" / "cifar10_sample"
        run = trainer("data", "download", "cifar10", "--root", sample, env=env)
        self.assertEqual((run.returncode, run.out, run.err), (0, f"cifar10: 2000 training and 500 validation images in {sample}\n", ""))
        root = self.folder / "data"
        for name, source in (("cifar100", "cifar-100-binary.tar.gz"), ("fashion_mnist", "train-images-idx3-ubyte.gz")):
            with self.subTest(name):
                run = trainer("data", "download", name, "--root", root, env=env)
                self.assertEqual(run.returncode, 3, run.err)
                self.assertRegex(run.err.splitlines()[-1], rf"^error: cannot download http\S+: .*127\.0\.0\.1.*; try again, or .* by hand")
                self.assertIn(source, run.err)
                self.assertEqual(list(root.iterdir()), [])
        run = trainer("data", "download", "synthetic")
        self.assertEqual(run.returncode, 2)
        self.assertIn("synthetic not in {cifar10,cifar100,mnist,fashion_mnist,tiny_imagenet}", run.err)

    def test_a_stop_request_before_the_program_starts(self):
        """The signal is blocked while the libraries are initialised. Afterwards, every command ends with the exit code of a stop."""
        run = ["--config", LINEAR, "training.epochs=1000000", "--run-dir", self.run_dir]
        for command in (run, ["config", "show", "--config", LINEAR]):
            with self.subTest(command=command[0]):
                process = start(*command)
                is_blocked = False
                while not is_blocked and process.poll() is None:
                    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                    is_blocked = int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16) >> (signal.SIGTERM - 1) & 1
                process.send_signal(signal.SIGTERM)
                err = process.communicate(timeout=60)[1]
                self.assertEqual(process.returncode, 75, err)
                self.assertIn("Name:\ttrainer\n", status)

    def test_threads_that_wait_leave_their_core_to_other_processes(self):
        """The OpenMP library uses the value that the program sets for GOMP_SPINCOUNT, unless the user has set one."""
        inherited = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        for variables, count in (({}, "10000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")):
            with self.subTest(**variables):
                env = {**inherited, "OMP_DISPLAY_ENV": "verbose", **variables}
                run = subprocess.run([BINARY, "config", "show", "--config", LINEAR], env=env, capture_output=True, text=True, timeout=60)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(re.search(r"GOMP_SPINCOUNT = '(\w+)'", run.stderr)[1], count)

    def test_only_cpu_libraries_are_loaded(self):
        process = start("--config", LINEAR, "training.epochs=1000000", "--run-dir", self.run_dir)
        for line in process.stderr:
            if line.startswith("epoch 1"):
                break
        maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text()
        process.send_signal(signal.SIGTERM)
        process.communicate()
        self.assertEqual(process.returncode, 75)
        self.assertIn("libtorch_cpu.so", maps)
        if not pathlib.Path("/proc/driver/nvidia/version").exists():
            for library in ("libtorch_cuda", "libcublas", "libcudnn", "libnccl", "libtrainer_cuda"):
                self.assertNotIn(library, maps)

    def test_answers_without_libtorch(self):
        alone = self.folder / "trainer"
        shutil.copy(BINARY, alone)
        families = [["list", line.split()[0]] for line in re.findall(r"(?m)^[a-z_]+ ", trainer("list").out)]
        self.assertIn(["list", "samplers"], families)
        for arguments in (["--help"], ["help", "train"], ["train", "--help"], ["list"], *families, ["config", "reference"], ["--version"],
                          ["launch", "--help"]):
            run = subprocess.run([alone, *arguments], capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr), (0, ""), arguments)
            self.assertGreater(len(run.stdout), 60, arguments)
        run = subprocess.run([alone, "--config", LINEAR], capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("error: the training library of this program cannot be loaded: libtrainer.so.0.1: cannot open shared object file", run.stderr)


if __name__ == "__main__":
    unittest.main()
