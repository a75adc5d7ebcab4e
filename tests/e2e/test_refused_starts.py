"""Errors and warnings at the start of a run and when memory runs out. TRAINER_BINARY is the program."""

import os
import pathlib
import re
import resource
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from launches import write_safetensors  # noqa: E402
from program import BINARY, IMAGES, LINEAR, ROOT, ProgramCase, trainer  # noqa: E402
from troubleshooting import plants  # noqa: E402


class RefusedStartsTest(ProgramCase):
    def test_all_configuration_errors_are_reported_and_nothing_starts(self):
        config = self.folder / "x.yaml"
        config.write_text(LINEAR.read_text().replace("lr: 0.01", "learning_rate: 0.01"))
        run = self.train("--config", config, "training.epochs=none")
        self.assertEqual(run.returncode, 2)
        self.assertRegex(run.err, r"x\.yaml:\d+:\d+: optimizer\.learning_rate: unknown key; did you mean \"lr\"\?")
        self.assertIn("command line: training.epochs: expected an integer >= 1 or null, got none", run.err)
        self.assertFalse(self.run_dir.exists())

    def test_a_refused_start_leaves_no_new_folder(self):
        empty = self.folder / "empty"
        empty.mkdir()
        for args, code, text in (
            (["--resume", self.folder / "absent.pt"], 5, f"error: {self.folder}/absent.pt: there is no such file; check the path"),
            ([f"model.init_from={self.folder}/absent.pt"], 5, f"error: {self.folder}/absent.pt: there is no such file; check the path"),
            (["--resume", empty], 2,
             f"error: --resume {empty}: this folder contains no checkpoint; give the folder of a run that has saved one, or a file"),
            (["dataloader.batch_size=2000"], 2,
             "error: command line: dataloader.batch_size: 1024 training samples are fewer than one batch of 2000; lower batch_size, or "
             "set dataloader.drop_last: false"),
            (["model={name: resnet18}", "dataset={name: synthetic, num_train: 15}", "loss={name: cross_entropy}", "dataloader.batch_size=7",
              "dataloader.drop_last=false"], 2,
             "error: command line: dataloader.drop_last: the last batch of an epoch has only one image, so the batch normalisation "
             "layer4.0.bn1 would get one value per channel, whose variance is undefined; set dataloader.drop_last: true, or another "
             "dataloader.batch_size"),
        ):
            with self.subTest(args=args):
                run = self.train("--config", LINEAR, *args)
                self.assertEqual((run.returncode, run.err.splitlines()[-1]), (code, text))
                self.assertEqual(list(self.folder.iterdir()), [empty])

    def test_a_refused_start_does_not_change_an_earlier_run(self):
        self.assertEqual(self.train("--config", LINEAR, "training.epochs=1").returncode, 0)
        # An unfinished run that has metrics after its checkpoint, which a resumed run would measure again.
        (self.run_dir / "summary.json").unlink()
        with (self.run_dir / "metrics.jsonl").open("a") as metrics:
            metrics.write('{"event": "train", "epoch": 1, "step": 40}\n')
        read = lambda: {path.relative_to(self.run_dir): path.read_bytes() for path in sorted(self.run_dir.rglob("*")) if path.is_file()}
        before = read()
        log = before.pop(pathlib.Path("train.log"))
        for args, code, text in (
            (["--resume", "none"], 2, "holds an unfinished run, which is not overwritten"),
            (["--resume", self.folder / "absent.pt"], 5, "there is no such file"),
            (["seed=7"], 2, "was saved with another configuration (seed: 7, not 42)"),
            (["model.freeze=[fc.bias]"], 2, "was saved with another configuration (model.freeze: [fc.bias], not [])"),
            (["optimizer.groups=[{parameters: [fc.bias]}]"], 2, "was saved with another configuration (optimizer.groups: [{parameters: [fc.bias]"),
            (["dataloader.batch_size=2000"], 2, "1024 training samples are fewer than one batch of 2000"),
            (["lr_scheduler={warmup_steps: 200}"], 2, "the warm-up of 200 steps must be shorter than the training run of 160 steps"),
        ):
            with self.subTest(args=args):
                run = self.train("--config", LINEAR, *args)
                self.assertEqual((run.returncode, text in run.err.splitlines()[-1]), (code, True), run.err)
                after = read()
                self.assertTrue(after.pop(pathlib.Path("train.log")).startswith(log))
                self.assertEqual(after, before)

    def test_warnings_appear_once(self):
        weights = self.folder / "weights.safetensors"
        write_safetensors(weights, {"fc.bias": ([10], [0] * 10)})
        config = self.folder / "x.yaml"
        config.write_text("experiment: warnings\nmodel: {name: demo_conv}\ndataloader: {batch_size: 4}\noptimizer: {name: sgd, lr: 0.01}\n"
                          "dataset: {name: synthetic, num_train: 16, num_validation: 4}\n"
                          "lr_scheduler: {name: multistep, milestones: [9]}\ntraining: {epochs: 2}\n")
        settings = ["--config", config, "checkpoint.mode=min", "training.accumulation_steps=3", f"model.init_from={weights}",
                    "model.init_strict=false"]
        of_the_file = [
            f"warning: {config}:6:45: lr_scheduler.milestones: epoch 9 is not reached in 2 epochs of training; remove it, or raise training.epochs",
            "warning: command line: checkpoint.mode: min keeps the checkpoint with the lowest validation/top1 as the best one, but a higher value is better; remove mode",
        ]
        of_the_run = [
            "warning: command line: training.accumulation_steps: an epoch has fewer than 3 micro-steps, so each epoch is one step of 2 micro-steps",
            f"warning: command line: model.init_from: only 1 of the 4 tensors of the network fit {weights}; the others start with random values; if this is not intended, choose the model for which the file was made",
        ]
        shown = trainer("config", "show", *settings)
        self.assertEqual((shown.returncode, shown.err.splitlines()), (0, of_the_file))
        self.assertTrue(shown.out.startswith("experiment: warnings\n"))
        self.assertNotIn("warning: ", shown.out)
        run = self.trained("launch", "--nproc-per-node", "2", *settings)
        log = (self.run_dir / "train.log").read_text()
        for text in (run.err, log):
            self.assertEqual(re.findall("warning: .*", text), of_the_file + of_the_run, text)

    def test_pipes_and_devices(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        refusal = f"cannot read {pipe}: it is a pipe, not a regular file"
        weights = self.train("--config", LINEAR, f"model.init_from={pipe}")
        self.assertEqual((weights.returncode, refusal in weights.err), (5, True), weights.err)
        data = self.folder / "cifar-10-batches-bin"
        data.mkdir()
        (data / "data_batch_1.bin").symlink_to(pipe)
        cifar = ["--config", ROOT / "configs" / "cifar10_resnet20.yaml", f"dataset.root={self.folder}", "--run-dir", self.folder / "cifar"]
        run = trainer(*cifar)
        self.assertEqual((run.returncode, refusal.replace("/pipe", "/cifar-10-batches-bin/data_batch_1.bin") in run.err), (3, True), run.err)
        self.run_dir.mkdir()
        self.assertEqual(self.train("--config", LINEAR, "--resume", "none", "training.epochs=1").returncode, 0)
        (self.run_dir / "summary.json").unlink()
        for file in (self.run_dir / "checkpoints").iterdir():
            file.unlink()
        checkpoint = self.run_dir / "checkpoints" / "step_00000999.pt"
        os.mkfifo(checkpoint)
        run = self.train("--config", LINEAR)
        self.assertEqual((run.returncode, f"warning: cannot read {checkpoint}: it is a pipe" in run.err), (5, True), run.err)
        zero = trainer("--config", "/dev/zero")
        self.assertEqual((zero.returncode, zero.err), (2, "error: cannot read /dev/zero: it is a device, not a regular file or a pipe\n"))
        # The cases `cat FILE | trainer …` and `trainer --config <(…)`.
        with LINEAR.open() as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as cat:
            shown = subprocess.run([BINARY, "config", "show", "--config", "/dev/stdin"], stdin=cat.stdout, capture_output=True, text=True, timeout=60)
        self.assertEqual((shown.returncode, "demo_linear" in shown.stdout), (0, True), shown.stderr)

    @plants("The working folder has been removed")
    def test_a_working_folder_that_is_removed(self, row):
        for launcher in ([], ["launch"]):
            gone = self.folder / "gone"
            gone.mkdir()
            run = self.train(*launcher, "--config", LINEAR, cwd=gone, preexec_fn=lambda: os.rmdir(gone))
            row.check(self, run.err, run.returncode)
            self.assertEqual(run.err.count("\n"), 1, run.err)

    @unittest.skipIf(os.getuid() != 0, "needs to become another user, whose processes are limited")
    @plants("Too few threads are allowed")
    def test_too_few_threads_are_allowed(self, row):
        self.folder.chmod(0o755)
        self.run_dir.mkdir()
        self.run_dir.chmod(0o777)
        # A user without other processes, because the limit counts all processes of a user.
        user = 780000 + os.getpid() % 10000
        for number, ranks in ((2, []), (3, []), (5, []), (8, []), (5, ["--rank", 0, "--world-size", 2, "--init-method", "tcp://127.0.0.1:1"])):
            run = self.train("--config", LINEAR, "runtime.threads=4", *ranks, user=user, group=user, extra_groups=[],
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (number, number)))
            row.check(self, run.err, run.returncode)
            self.assertRegex(run.err, rf"^error: .* user {user} may have {number} processes .*\n$")

    @plants("Too few open files are allowed")
    def test_too_few_open_files_are_allowed(self, row):
        for number in (24, 32, 40):
            run = self.train("launch", "--nproc-per-node", 2, "--config", LINEAR,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (number, number)))
            row.check(self, run.err, run.returncode)

    @plants("Too little address space is allowed")
    def test_too_little_address_space_is_allowed(self, row):
        for launcher in ([], ["launch", "--nproc-per-node", 2]):
            for size in (400 << 20, 700 << 20, 1000 << 20):
                run = self.train(*launcher, "--config", LINEAR, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)))
                row.check(self, run.err, run.returncode)

    def refused_inside(self, namespaces, preparation, *args, **options):
        """The last line of a command in new namespaces, after a shell command that takes something away."""
        command = ["unshare", namespaces, "sh", "-c", f'{preparation} && exec "$@"', "-", BINARY, *map(str, args), "--run-dir", self.run_dir]
        run = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, **options)
        self.assertIn(run.returncode, (1, 4), run.stderr)
        return run.stderr

    @unittest.skipIf(subprocess.run(["unshare", "-rmn", "true"], capture_output=True).returncode != 0, "needs namespaces")
    def test_what_the_host_lacks_is_named(self):
        launch = ["launch", "--nproc-per-node", 2, "--config", LINEAR]
        self.assertRegex(self.refused_inside("-rn", "true", *launch),
                         r"error: the loopback interface of this host is down, .* at 127\.0\.0\.1:\d+; switch it on: ip link set lo up\n")
        self.assertEqual(self.refused_inside("-rm", "mount -t tmpfs none /proc", *launch),
                         "error: cannot read /proc/self/exe: No such file or directory; mount /proc (mount -t proc proc /proc), which this "
                         "program needs\n")
        self.assertEqual(self.refused_inside("-rm", "mount -t tmpfs none /dev", *launch),
                         f"error: cannot start {pathlib.Path(BINARY).resolve()} with /dev/null as its input: No such file or directory\n")
        self.assertEqual(self.refused_inside("-rm", "mount -t tmpfs none /dev && exec <&-", "--config", LINEAR),
                         "error: cannot open /dev/null, which replaces a closed standard input or output\n")

    def test_checkpoints_that_are_too_large_for_a_file(self):
        args = ["--config", ROOT / "configs" / "demo_conv.yaml", "dataset.num_train=64", "training.epochs=1", "optimizer.momentum=0"]
        text = rf"checkpoints need 564\.3 KiB to 1\.7 MiB, but a file in {self.run_dir}/checkpoints may have %s \(ulimit -f, or a file system such as FAT32\); raise"
        refused = self.train(*args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (400 << 10, 400 << 10)))
        self.assertEqual(refused.returncode, 5, refused.err)
        self.assertRegex(refused.err, "error: " + text % r"400\.0 KiB")
        warned = self.trained(*args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
        self.assertRegex(warned.err, "warning: " + text % r"1\.0 MiB")

    def test_the_error_for_missing_data_states_the_remedy(self):
        run = self.train("--config", ROOT / "configs" / "cifar10_resnet20.yaml", f"dataset.root={self.folder}", "dataset.download=false")
        self.assertEqual(run.returncode, 3)
        self.assertIn("cifar-10-batches-bin", run.err)
        self.assertIn("dataset.download", run.err)
        self.assertIn(run.err.splitlines()[-1].removeprefix("error: "), (self.run_dir / "train.log").read_text())
        # Nothing has been trained, so the run directory can be used again.
        self.trained("--config", LINEAR)

    def test_sizes_that_no_memory_holds(self):
        outputs = 1 << 31
        data = f"dataset={{name: synthetic, shape: [3, 32, 32], num_classes: {outputs - 1}, num_train: 6, num_validation: 6}}"
        plain = ["dataset.train_transforms=[]", "dataset.validation_transforms=[]"]
        for model, size in ((f"model={{name: demo_conv, num_classes: {outputs - 1}}}", " (one of its tensors needs "),
                            (f"model={{name: wide_resnet, width: 1000000000000, num_classes: {outputs - 1}}}", "")):
            run = self.train(*IMAGES, data, *plain, model, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
            self.assertEqual(run.returncode, 2, run.err)
            self.assertRegex(run.err, r"error: out of memory for the network \w+ and its optimizer" + re.escape(size) + ".*; reduce the sizes")
            self.assertNotIn("frame #", run.err)

    def test_out_of_memory_names_the_batch_size(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        small = ["dataloader.global_batch_size=2000", "dataloader.prefetch=1", "amp.enabled=false"]
        step = self.train(*IMAGES, *small, "model={name: resnet50, stem: cifar}", preexec_fn=limit)
        self.assertEqual(step.returncode, 1, step.err)
        self.assertIn("out of memory in step 0 at batch_size 2000", step.err)
        self.run_dir = self.folder / "loader"
        loader = self.train(*IMAGES, "dataloader.global_batch_size=2000", "dataloader.prefetch=500", preexec_fn=limit)
        self.assertEqual(loader.returncode, 1, loader.err)
        self.assertIn("out of memory for 501 batches of batch_size 2000", loader.err)


if __name__ == "__main__":
    unittest.main()
