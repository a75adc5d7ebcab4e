"""Runs of the program as a user starts it. TRAINER_BINARY is the program; TRAINER_OPENCV is 0 if it was built without OpenCV."""

import csv
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import terminal  # noqa: E402
from launches import write_safetensors  # noqa: E402
from troubleshooting import plants  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ["TRAINER_BINARY"]
LINEAR = ROOT / "configs" / "demo_linear.yaml"
IMAGES = ["--config", ROOT / "configs" / "quickstart.yaml", "training.epochs=1", "dataloader.global_batch_size=500", "logging.every_steps=1"]


def start(*args, cwd=ROOT, **options):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([BINARY, *map(str, args)], cwd=cwd, **pipes, **options)


def trainer(*args, **options):
    process = start(*args, **options)
    process.out, process.err = process.communicate(timeout=120)
    return process


def events(run_dir, kind=None):
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if kind in (None, line["event"])]


def results(run_dir):
    """The events that have to be the same in equal runs."""
    keys = ("event", "epoch", "step", "loss", "top1", "top5", "lr", "num_samples")
    # Without events of checkpoints, because the time at which a checkpoint is written varies.
    return [{key: event[key] for key in keys if key in event} for event in events(run_dir) if event["event"] != "checkpoint"]


class TrainerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_dir = self.folder / "run"

    def train(self, *args, **options):
        return trainer(*args, "--run-dir", self.run_dir, **options)

    def test_files_of_a_run(self):
        run = self.train("--config", LINEAR)
        self.assertEqual(run.returncode, 0, run.err)
        self.assertEqual(run.out, "")
        self.assertNotIn("\x1b", run.err)
        self.assertRegex(run.err, r"epoch 1/5  step 10/32  loss \d\.\d{4}  lr 0\.0100  \d+ img/s  data \d+%  mem \d+\.\d [KMG]iB  ETA ")
        for name in ("config.yaml", "environment.json", "train.log", "metrics.jsonl", "metrics.csv", "tensorboard", "summary.json"):
            self.assertTrue((self.run_dir / name).exists(), name)
        train = events(self.run_dir, "train")
        self.assertEqual([event["step"] for event in train[:4]], [10, 20, 30, 32])
        self.assertLessEqual({"event", "time", "epoch", "step", "loss", "lr", "images_per_second", "data_wait", "queue_depth"}, set(train[0]))
        self.assertEqual([event["num_samples"] for event in events(self.run_dir, "validation")], [256] * 5)
        summary = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual((summary["reason"], summary["step"], summary["monitor"]), ("done", 160, "validation/loss"))
        environment = json.loads((self.run_dir / "environment.json").read_text())
        if "with bfloat16 autocast" in run.err:
            self.assertIn(environment["convolution"], ("winograd4", "direct"))  # direct on a processor with AMX
        else:
            self.assertEqual(environment["convolution"], "winograd2")
        self.assertTrue(environment["fused_operators"])
        self.assertRegex(environment["libtorch_version"], r"^\d+\.\d+\.\d+")
        self.assertIn(f"LibTorch {environment['libtorch_version']}\n", trainer("--version").out)
        self.assertEqual(len((self.run_dir / "metrics.csv").read_text().splitlines()), 6)

    def test_a_terminal_that_cannot_erase_gets_plain_lines(self):
        for term in ("dumb", ""):
            with self.subTest(term=term):
                settings = ["--config", LINEAR, "training.epochs=1", "runtime.threads=1", "--run-dir", self.folder / f"run-{term}"]
                code, text = terminal.run([BINARY, *settings], term=term, cwd=ROOT)
                self.assertEqual(code, 0, text)
                self.assertNotIn("\x1b", text)
                self.assertNotIn("\r", text.replace("\r\n", "\n"))
                # The lines after these are copied, so they are not broken.
                screen = terminal.show(text[:text.index("files in ")], 80)
                self.assertEqual(screen.wrapped, [], text)
                self.assertEqual(len(re.findall(r"(?m)^epoch 1/1  step \d+/32  loss", "\n".join(screen.lines()))), 4, text)

    def test_epochs_have_the_same_numbers_everywhere(self):
        run = self.train("--config", LINEAR, "training.epochs=2", "checkpoint.every_steps=20")
        self.assertEqual(run.returncode, 0, run.err)
        # 32 steps are an epoch. Files count epochs from 0, the console from 1.
        for event in events(self.run_dir):
            self.assertEqual(event["epoch"], max(event["step"] - 1, 0) // 32, event)
        with (self.run_dir / "metrics.csv").open() as table:
            self.assertEqual([(row["epoch"], row["step"]) for row in csv.DictReader(table)], [("0", "32"), ("1", "64")])
        summary = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual([(part["epoch"], part["step"]) for part in (summary, summary["final"])], [(1, 64), (1, 64)])
        best = summary["best"]
        self.assertIn(f"in epoch {best['epoch'] + 1}, step {best['step']}\n", run.err)
        shown = [int(number) for number in re.findall(r"(?m)^(?:validation  )?epoch (\d)/2  ", run.err)]
        self.assertEqual(shown, [event["epoch"] + 1 for event in events(self.run_dir) if event["event"] in ("train", "validation")])

    def test_the_resolved_file_reproduces_the_run(self):
        self.assertEqual(self.train("--config", LINEAR, "training.epochs=2").returncode, 0)
        again = self.folder / "again"
        run = trainer("--config", self.run_dir / "config.yaml", "--run-dir", again)
        self.assertEqual(run.returncode, 0, run.err)
        self.assertEqual(results(again), results(self.run_dir))
        self.assertEqual((again / "config.yaml").read_text(), (self.run_dir / "config.yaml").read_text())

    def test_image_runs_are_equal_for_any_number_of_workers(self):
        reference = None
        for workers in (0, 1, 3):
            run_dir = self.folder / str(workers)
            run = trainer("train", *IMAGES, f"dataloader.num_workers={workers}", "--run-dir", run_dir)
            self.assertEqual(run.returncode, 0, run.err)
            reference = reference or results(run_dir)
            self.assertEqual(results(run_dir), reference)
        self.assertGreater(len(reference), 4)

    def test_a_finished_run_is_not_changed(self):
        self.assertEqual(self.train("--config", LINEAR).returncode, 0)
        before = (self.run_dir / "metrics.jsonl").read_text()
        again = self.train("--config", LINEAR)
        self.assertEqual(again.returncode, 0)
        self.assertIn("holds a finished run", again.err)
        for change, difference in (("optimizer.lr=0.5", "optimizer.lr: 0.5, not 0.01"), ("seed=7", "seed: 7, not 42"),
                                   ("training.epochs=2", "training.epochs: 2, not 5"),
                                   ("logging.every_steps=3", "logging.every_steps: 3, not 10")):
            with self.subTest(change):
                other = self.train("--config", LINEAR, change)
                self.assertEqual(other.returncode, 2, other.err)
                self.assertIn(f"{self.run_dir} holds a finished run of another configuration ({difference}); undo this change", other.err)
        self.assertEqual((self.run_dir / "metrics.jsonl").read_text(), before)

    def test_a_finished_run_goes_on_to_more_epochs(self):
        straight = self.folder / "straight"
        self.assertEqual(trainer("--config", LINEAR, "--run-dir", straight).returncode, 0)
        self.assertEqual(self.train("--config", LINEAR, "training.epochs=3").returncode, 0)
        longer = self.train("--config", LINEAR)
        self.assertEqual(longer.returncode, 0, longer.err)
        self.assertIn("changed since the checkpoint: training.epochs: 5, not 3", longer.err)
        self.assertIn("resumes from", longer.err)
        # The schedule is constant, so nothing shows that the run was finished in between.
        measured = [[event for event in results(run_dir) if event["event"] in ("train", "validation")] for run_dir in (self.run_dir, straight)]
        self.assertEqual(*measured)
        again = self.train("--config", LINEAR)
        self.assertEqual(again.returncode, 0)
        self.assertIn("holds a finished run", again.err)

    @plants("A finished run is started again with another configuration", "An extended run has nothing left to train")
    def test_a_finished_run_is_extended_with_another_learning_rate_on_purpose(self, of_another, complete):
        self.assertEqual(self.train("--config", LINEAR, "training.epochs=2").returncode, 0)
        changes = ("training.epochs=3", "optimizer.lr=0.001", "lr_scheduler={name: linear}")
        refused = self.train("--config", LINEAR, *changes)
        of_another.check(self, refused.err, refused.returncode, FILE=self.run_dir)
        nothing = self.train("--config", LINEAR, "training.epochs=2", "optimizer.lr=0.001", "training.extend=true")
        complete.check(self, nothing.err, nothing.returncode, FILE=self.run_dir, NUMBER=2)
        longer = self.train("--config", LINEAR, *changes, "training.extend=true")
        self.assertEqual(longer.returncode, 0, longer.err)
        self.assertIn(f"the finished run in {self.run_dir} is trained further, from step 64", longer.err)
        self.assertIn("optimizer.lr: 0.001, not 0.01", longer.err)
        # The new schedule, over the whole training: a third of it is left.
        lines = [event for event in events(self.run_dir) if event["event"] == "train" and event["step"] > 64]
        self.assertAlmostEqual(lines[0]["lr"], 0.001 * (96 - lines[0]["step"] + 1) / 96, delta=1e-12)
        again = self.train("--config", LINEAR, *changes, "training.extend=true")
        self.assertEqual(again.returncode, 0)
        self.assertIn("holds a finished run", again.err)

    @plants("A run that has ended early is to be trained further")
    def test_a_run_that_ends_early(self, row):
        early = ("--config", LINEAR, "optimizer.lr=0", "training.epochs=20", "training.early_stopping={patience: 3}")
        run = self.train(*early)
        self.assertEqual(run.returncode, 0, run.err)
        self.assertRegex(run.err, r"early  128 steps  .* in 3 validations in a row \(training\.early_stopping\)\n")
        self.assertIn(f"to evaluate: trainer eval --checkpoint {self.run_dir}/checkpoints/best.pt", run.err)
        summary = json.loads((self.run_dir / "summary.json").read_text())
        self.assertEqual((summary["reason"], summary["step"], summary["best"]["step"]), ("early", 128, 32))
        self.assertIn("holds a finished run", self.train(*early).err)
        self.assertRegex(trainer("runs", self.folder).out, r" early +4/20 ")
        further = self.train(*early, "training.epochs=30")
        row.check(self, further.err, further.returncode, FILE=self.run_dir, NUMBER=3)
        patient = self.train(*early, "training.early_stopping={patience: 5}", "training.extend=true")
        self.assertEqual(patient.returncode, 0, patient.err)
        # training.extend is no part of what was trained.
        again = self.train(*early, "training.early_stopping={patience: 5}")
        self.assertEqual(again.returncode, 0, again.err)
        self.assertIn("holds a finished run", again.err)
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["step"], 192)
        straight = self.folder / "straight"
        self.assertEqual(trainer(*early, "training.early_stopping={patience: 5}", "--run-dir", straight).returncode, 0)
        ends = [[event for event in results(folder) if event["event"] in ("train", "validation")] for folder in (self.run_dir, straight)]
        self.assertEqual(*ends)

    def test_interrupt_saves_and_the_run_resumes(self):
        process = start("--config", LINEAR, "training.epochs=1000000", "--run-dir", self.run_dir)
        for line in process.stderr:
            if line.startswith("epoch 2"):
                break
        second = self.train("--config", LINEAR)
        self.assertEqual(second.returncode, 2)
        self.assertIn(f"process {process.pid}", second.err)
        process.send_signal(signal.SIGINT)
        self.assertIn("stopped", process.stderr.read())
        process.stderr.close()
        process.stdout.close()
        self.assertEqual(process.wait(), 75)
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["reason"], "stopped")
        none = self.train("--config", LINEAR, "--resume", "none")
        self.assertEqual(none.returncode, 2)
        self.assertIn("holds an unfinished run, which is not overwritten", none.err)
        again = self.train("--config", LINEAR)
        self.assertEqual(again.returncode, 0, again.err)
        resumed = re.search(r"resumes from \S+: epoch (\d+), step (\d+)\n", again.err)
        event = events(self.run_dir, "resume")[-1]
        self.assertEqual((event["epoch"] + 1, event["step"]), tuple(map(int, resumed.groups())))

    def test_all_configuration_errors_are_reported_and_nothing_starts(self):
        config = self.folder / "x.yaml"
        config.write_text(LINEAR.read_text().replace("lr: 0.01", "learning_rate: 0.01"))
        run = self.train("--config", config, "training.epochs=none")
        self.assertEqual(run.returncode, 2)
        self.assertRegex(run.err, r"x\.yaml:\d+:\d+: optimizer\.learning_rate: unknown key; did you mean \"lr\"\?")
        self.assertIn("command line: training.epochs: expected an integer >= 1 or null, got none", run.err)
        self.assertFalse(self.run_dir.exists())

    def test_contradictions_are_listed_with_their_positions_and_nothing_is_written(self):
        config = self.folder / "x.yaml"
        config.write_text(f"experiment: contradictions\noutput_dir: {self.folder}/runs\nmodel: {{name: demo_conv, num_classes: 7}}\n"
                          "dataset: {name: synthetic, shape: [3, 28, 28]}\noptimizer: {name: sam, lr: 0.1}\n"
                          "lr_scheduler: {name: onecycle, warmup_steps: 3}\ntraining: {epochs: 3, accumulation_steps: 2}\n")
        run = trainer("--config", config, "dataloader={batch_size: 8, global_batch_size: 8}")
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.err.splitlines(), [
            f"{config}:3:15: model.name: demo_conv takes samples of shape 3x32x32, but synthetic has 3x28x28 after "
            "dataset.train_transforms",
            f"{config}:3:39: model.num_classes: demo_conv has 7 outputs, but synthetic has 10 classes",
            f"{config}:5:19: optimizer.name: sam processes each batch twice, so it cannot accumulate 2 micro-steps; set "
            "training.accumulation_steps: 1",
            f"{config}:6:46: lr_scheduler.warmup_steps: onecycle has a warm-up of its own; remove this key",
            "command line: dataloader.global_batch_size: given together with dataloader.batch_size; keep one of them",
        ])
        self.assertEqual(list(self.folder.iterdir()), [config])

    def test_a_refused_start_leaves_no_new_folder(self):
        empty = self.folder / "empty"
        empty.mkdir()
        for args, code, text in (
            (["--resume", self.folder / "absent.pt"], 5, f"error: {self.folder}/absent.pt: there is no such file; check the path"),
            ([f"model.init_from={self.folder}/absent.pt"], 5, f"error: {self.folder}/absent.pt: there is no such file; check the path"),
            (["--resume", empty], 2,
             f"error: --resume {empty}: this folder holds no checkpoint; give the folder of a run that has saved one, or a file"),
            (["dataloader.batch_size=2000"], 2,
             "error: command line: dataloader.batch_size: 1024 training images are fewer than one batch of 2000; lower it, or set "
             "dataloader.drop_last: false"),
        ):
            with self.subTest(args=args):
                run = self.train("--config", LINEAR, *args)
                self.assertEqual((run.returncode, run.err.splitlines()[-1]), (code, text))
                self.assertEqual(list(self.folder.iterdir()), [empty])

    def test_a_refused_start_does_not_change_an_earlier_run(self):
        self.assertEqual(self.train("--config", LINEAR, "training.epochs=1").returncode, 0)
        # An unfinished run that has measured something after its checkpoint, which a resumed run would measure again.
        (self.run_dir / "summary.json").unlink()
        with (self.run_dir / "metrics.jsonl").open("a") as metrics:
            metrics.write('{"event": "train", "epoch": 1, "step": 40}\n')
        read = lambda: {path.relative_to(self.run_dir): path.read_bytes() for path in sorted(self.run_dir.rglob("*")) if path.is_file()}
        before = read()
        log = before.pop(pathlib.Path("train.log"))
        for args, code, text in (
            (["--resume", "none"], 2, "holds an unfinished run, which is not overwritten"),
            (["--resume", self.folder / "absent.pt"], 5, "there is no such file"),
            (["seed=7"], 2, "belongs to another run (seed: 7, not 42)"),
            (["model.freeze=[fc.bias]"], 2, "belongs to another run (model.freeze: [fc.bias], not [])"),
            (["optimizer.groups=[{parameters: [fc.bias]}]"], 2, "belongs to another run (optimizer.groups: [{parameters: [fc.bias]"),
            (["dataloader.batch_size=2000"], 2, "1024 training images are fewer than one batch of 2000"),
            (["lr_scheduler={warmup_steps: 200}"], 2, "the warm-up of 200 steps is not shorter than the training of 160 steps"),
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
            f"warning: {config}:6:45: lr_scheduler.milestones: epoch 9 is not reached in a training of 2 epochs",
            "warning: command line: checkpoint.mode: min keeps the checkpoint with the lowest validation/top1 as the best, but a higher "
            "one is better; leave mode out",
        ]
        of_the_run = [
            "warning: command line: training.accumulation_steps: 3 micro-steps are more than an epoch has, so that each epoch is one step "
            "of 2",
            f"warning: command line: model.init_from: only 1 of the 4 tensors of the network are in {weights}; the others start at random",
        ]
        shown = trainer("config", "show", *settings)
        self.assertEqual((shown.returncode, shown.err.splitlines()), (0, of_the_file))
        self.assertTrue(shown.out.startswith("experiment: warnings\n"))
        self.assertNotIn("warning: ", shown.out)
        run = self.train("launch", "--nproc-per-node", "2", *settings)
        self.assertEqual(run.returncode, 0, run.err)
        log = (self.run_dir / "train.log").read_text()
        for text in (run.err, log):
            self.assertEqual(re.findall("warning: .*", text), of_the_file + of_the_run, text)

    def test_a_name_with_control_characters_is_refused(self):
        config = self.folder / "x.yaml"
        config.write_text(LINEAR.read_text() + f"output_dir: {self.folder}/runs\n")
        expected = "experiment: expected text without control characters, got "
        for override, shown in (('"a\\0b"', r'"a\x00b"'), ('"a\\eb"', r'"a\x1bb"'), ('"a\n\nb"', r'"a\x0ab"')):
            run = trainer("--config", config, f"experiment={override}")
            self.assertEqual((run.returncode, run.err), (2, f"error: command line: {expected}{shown}\n"))
        config.write_text(config.read_text().replace("experiment: demo_linear", "experiment: a\x1b]0;title\x07b"))
        line = config.read_text().split("experiment: ")[0].count("\n") + 1
        run = trainer("--config", config)
        self.assertEqual((run.returncode, run.err), (2, f"error: {config}:{line}:13: {expected}" + r'"a\x1b]0;title\x07b"' + "\n"))
        self.assertEqual(list(self.folder.iterdir()), [config])

    def test_invalid_configuration_files(self):
        for name, content in {
            "empty": b"",
            "tabs": b"model:\n\tname: x\n",
            "twice": b"seed: 1\nseed: 2\n",
            "anchor": b"a: &b 1\n",
            "latin1": b"experiment: caf\xe9\n",
            "binary": bytes(range(256)) * 64,
            "deep": b"a: " + b"[" * 10_000_000,
            "deep_in_a_megabyte": b"a: " + b"{a: " * 200_000,
        }.items():
            with self.subTest(name):
                path = self.folder / name
                path.write_bytes(content)
                run = self.train("--config", path)
                self.assertEqual(run.returncode, 2, run.err)
                self.assertIn(str(path), run.err)
        for path in (self.folder, self.folder / "absent"):
            run = self.train("--config", path)
            self.assertEqual((run.returncode, str(path) in run.err), (2, True), run.err)

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
        (self.run_dir / "checkpoints").mkdir(parents=True, exist_ok=True)
        checkpoint = self.run_dir / "checkpoints" / "step_00000999.pt"
        os.mkfifo(checkpoint)
        run = self.train("--config", LINEAR)
        self.assertEqual((run.returncode, f"warning: cannot read {checkpoint}: it is a pipe" in run.err), (5, True), run.err)
        zero = trainer("--config", "/dev/zero")
        self.assertEqual((zero.returncode, zero.err), (2, "error: cannot read /dev/zero: it is a device, not a regular file or a pipe\n"))
        # As with `cat FILE | trainer …`, and `trainer --config <(…)`.
        with LINEAR.open() as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as cat:
            shown = subprocess.run([BINARY, "config", "show", "--config", "/dev/stdin"], stdin=cat.stdout, capture_output=True, text=True, timeout=60)
        self.assertEqual((shown.returncode, "demo_linear" in shown.stdout), (0, True), shown.stderr)

    def test_a_stop_request_before_the_program_starts(self):
        """While the libraries are initialised, the signal is blocked. A run then stops; another command ends by the signal."""
        run = ["--config", LINEAR, "training.epochs=1000000", "--run-dir", self.run_dir]
        for command, code in ((run, 75), (["config", "show", "--config", LINEAR], -signal.SIGTERM)):
            with self.subTest(command=command[0]):
                process = start(*command)
                is_blocked = False
                while not is_blocked and process.poll() is None:
                    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                    is_blocked = int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16) >> (signal.SIGTERM - 1) & 1
                process.send_signal(signal.SIGTERM)
                err = process.communicate(timeout=60)[1]
                self.assertEqual(process.returncode, code, err)
                self.assertIn("Name:\ttrainer\n", status)

    def test_threads_that_wait_leave_their_core_to_other_processes(self):
        """The OpenMP library has read the variable that the program has set for it, unless the user has set one."""
        inherited = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        for variables, count in (({}, "10000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")):
            with self.subTest(**variables):
                env = {**inherited, "OMP_DISPLAY_ENV": "verbose", **variables}
                run = subprocess.run([BINARY, "config", "show", "--config", LINEAR], env=env, capture_output=True, text=True, timeout=60)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(re.search(r"GOMP_SPINCOUNT = '(\w+)'", run.stderr)[1], count)

    def test_the_error_for_missing_data_states_the_remedy(self):
        run = self.train("--config", ROOT / "configs" / "cifar10_resnet20.yaml", f"dataset.root={self.folder}", "dataset.download=false")
        self.assertEqual(run.returncode, 3)
        self.assertIn("cifar-10-batches-bin", run.err)
        self.assertIn("dataset.download", run.err)
        self.assertIn(run.err.splitlines()[-1].removeprefix("error: "), (self.run_dir / "train.log").read_text())
        # Nothing was trained, so the run directory can be used again.
        again = self.train("--config", LINEAR)
        self.assertEqual(again.returncode, 0, again.err)

    def test_a_non_finite_step_is_saved_and_replayed(self):
        run = self.train("--config", LINEAR, "optimizer.lr=1.0e30")
        self.assertEqual(run.returncode, 1)
        match = re.search(r"error: step (\d+) is not finite, at learning rate 1e\+30: first (the .*); the step is skipped and saved for "
                         r"`trainer replay (.*)`; lower optimizer.lr", run.err)
        self.assertIsNotNone(match, run.err)
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["reason"], "failed")
        self.assertEqual((self.run_dir / "train.log").read_text().count("is not finite"), 1)
        self.assertEqual(run.err.count("is not finite"), 1)
        step, first, folder = match.groups()
        replayed = trainer("replay", folder)
        self.assertEqual(replayed.returncode, 0, replayed.err)
        self.assertTrue(replayed.out.startswith(f"step {step} of epoch 1, learning rate 1e+30\n"), replayed.out)
        self.assertTrue(replayed.out.endswith(f"\nfirst not finite: {first}, as in the run\n"), replayed.out)
        finite = trainer("replay", folder, "runtime.dtype=float64", "amp.enabled=false")
        self.assertEqual(finite.returncode, 1, finite.out)
        self.assertEqual(finite.err.splitlines()[-1], f"error: step {step} is finite this time; in the run {first} was not")
        nothing = trainer("replay", self.folder)
        self.assertEqual(nothing.returncode, 3)
        self.assertIn(f"{self.folder}/step.json: there is no such file; use the folder that the run's message names", nothing.err)

    def test_training_begins_with_the_weights_of_a_file(self):
        weights = self.folder / "weights.safetensors"
        # With these weights the first step is not finite; with initial weights it would be finite.
        write_safetensors(weights, {"fc.weight": ([10, 10], [3e38] * 100), "fc.bias": ([3], [0] * 3)})
        run = self.train("--config", LINEAR, f"model.init_from={weights}", "model.init_strict=false")
        self.assertIn(f"the model starts with 1 tensor of {weights}; skipped: not fitting fc.bias (Float[3], not Float[10])\n", run.err)
        self.assertIn("step 0 is not finite", run.err)
        missing = trainer("--config", LINEAR, f"model.init_from={self.folder}/absent.pt", "--run-dir", self.folder / "again")
        self.assertEqual((missing.returncode, f"{self.folder}/absent.pt" in missing.err), (5, True), missing.err)

    def test_sizes_that_no_memory_holds(self):
        outputs = 1 << 31
        data = f"dataset={{name: synthetic, shape: [3, 32, 32], num_classes: {outputs - 1}, num_train: 6, num_validation: 6}}"
        plain = ["dataset.train_transforms=[]", "dataset.validation_transforms=[]"]
        for model, size in ((f"model={{name: demo_conv, num_classes: {outputs - 1}}}", " (one tensor of it has "),
                            (f"model={{name: wide_resnet, width: 1000000000000, num_classes: {outputs - 1}}}", "")):
            run = self.train(*IMAGES, data, *plain, model, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
            self.assertEqual(run.returncode, 2, run.err)
            self.assertRegex(run.err, r"error: out of memory for the model \w+ and its optimizer" + re.escape(size) + ".*; choose smaller sizes")
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
        self.assertEqual((run.returncode, "has no images to show" in run.err), (2, True), run.err)

    def test_data_download(self):
        # What is there is not fetched again: these proxies do not exist.
        env = {**os.environ, "http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}
        sample = ROOT / "datasets" / "cifar10_sample"
        run = trainer("data", "download", "cifar10", "--root", sample, env=env)
        self.assertEqual((run.returncode, run.out, run.err), (0, f"cifar10: 2000 training and 500 validation images in {sample}\n", ""))
        root = self.folder / "data"
        for name, source in (("cifar100", "cifar-100-binary.tar.gz"), ("fashion_mnist", "train-images-idx3-ubyte.gz")):
            with self.subTest(name):
                run = trainer("data", "download", name, "--root", root, env=env)
                self.assertEqual(run.returncode, 3, run.err)
                self.assertRegex(run.err.splitlines()[-1], rf"^error: cannot get http\S+: .*127\.0\.0\.1.*; try again, or .* by hand")
                self.assertIn(source, run.err)
                self.assertEqual(list(root.iterdir()), [])
        run = trainer("data", "download", "synthetic")
        self.assertEqual(run.returncode, 2)
        self.assertIn("synthetic not in {cifar10,cifar100,mnist,fashion_mnist,tiny_imagenet}", run.err)

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
        for arguments in (["--help"], ["help", "train"], ["train", "--help"], ["list", "models"], ["config", "reference"], ["--version"], ["launch", "--help"]):
            run = subprocess.run([alone, *arguments], capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr), (0, ""), arguments)
            self.assertGreater(len(run.stdout), 60, arguments)
        run = subprocess.run([alone, "--config", LINEAR], capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("error: the part of this program that trains cannot be loaded: libtrainer_training.so: cannot open shared object file", run.stderr)


if __name__ == "__main__":
    unittest.main()
