"""Fine-tuning: cached features of frozen layers, layers that are frozen for the first epochs, learning rates by layer. TRAINER_BINARY is
the program."""

import os
import pathlib
import re
import resource
import shutil
import sys
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "testing"))
import equal_runs  # noqa: E402
from program import ROOT, FolderCase, trainer  # noqa: E402

NORMALIZE = "normalize: {mean: [0.49, 0.48, 0.45], std: [0.25, 0.24, 0.26]}"
EXPERIMENT = f"""experiment: x
model: {{name: resnet20, freeze: [backbone]}}
dataset:
  name: cifar10
  root: DATA
  train_transforms: [{NORMALIZE}]
  validation_transforms: [{NORMALIZE}]
dataloader: {{global_batch_size: 20}}
optimizer: {{name: adamw, lr: 0.01}}
training: {{epochs: 3}}
logging: {{every_steps: 1}}
runtime: {{device: cpu, threads: 1}}
amp: {{enabled: false}}
"""
CACHED = "training.cache_features=true"
NEEDS_FREEZE = "needs frozen layers; add model.freeze: [backbone]"
OFF = "or set training.cache_features: false"
WRONG = [
    ([CACHED, "model.freeze=[]"], f"training.cache_features: {NEEDS_FREEZE}"),
    ([CACHED, "model.freeze=[layer1]"],
     "training.cache_features: the network resnet20 trains parameters of its backbone, so its features change; set model.freeze: [backbone]"),
    ([CACHED, "model.freeze=[conv1, bn1.weight, bn1.bias, layer1, layer2, layer3]"],
     "training.cache_features: the network resnet20 uses batch statistics in training, so its features change; set model.freeze: [backbone]"),
    ([CACHED, "model={name: demo_conv, freeze: [conv]}"],
     "training.cache_features: the network demo_conv does not separate its backbone from its head (models::BackboneModel); remove this key"),
    ([CACHED, f"dataset.train_transforms=[random_horizontal_flip, {NORMALIZE}]"],
     f"dataset.train_transforms[0]: random_horizontal_flip makes a different image in each epoch, so features cannot be cached; remove it, {OFF}"),
    ([CACHED, f"dataset.train_transforms=[random_crop: {{size: 1000}}, {NORMALIZE}]"], f"random_crop makes a different image in each epoch"),
    ([CACHED, f"dataset.train_transforms=[random_horizontal_flip: {{alternate: true, p: 0}}, {NORMALIZE}]"], "random_horizontal_flip makes a different image in each epoch"),
    ([CACHED, f"dataset.train_transforms=[{NORMALIZE}, cutout: {{size: 4}}]"], "cutout makes a different image in each epoch"),
    ([CACHED, "dataset.batch_transforms=[mixup]"], f"dataset.batch_transforms: batch transforms mix images, but only features are cached; remove them, {OFF}"),
    ([CACHED, "dataset.distribution=scatter"], f"dataset.distribution: features can be cached only if each process reads its own samples; set local, {OFF}"),
    ([CACHED, "dataset.on_error=skip"], f"dataset.on_error: an image that cannot be read has no features; set fail, {OFF}"),
    ([CACHED, "validation.tta=flip"], f"validation.tta: test-time augmentation needs the images, but only their features are cached; set none, {OFF}"),
    ([CACHED, "training.unfreeze_after=1"],
     "training.unfreeze_after: given together with training.cache_features; train the frozen network first, then start another run with model.init_from"),
    (["training.unfreeze_after=3"], "training.unfreeze_after: has no effect, because it is not less than training.epochs; choose fewer epochs"),
    (["training.unfreeze_after=1", "model.freeze=[]"], "training.unfreeze_after: has no effect without model.freeze; set model.freeze, or remove this key"),
    (["training.unfreeze_after=0"], "training.unfreeze_after: expected an integer >= 1"),
    (["optimizer.layer_decay=0"], "optimizer.layer_decay: expected a number from 0 to 1 (0 excluded) or null, got 0"),
    (["optimizer.layer_decay=1.1"], "optimizer.layer_decay: expected"),
]


class FinetuneCase(FolderCase):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "x.yaml"
        # The data are the first 24 images of each file of the sample.
        self.data = self.folder / "data"
        for file in (ROOT / "datasets" / "cifar10_sample").rglob("*.bin"):
            copy = self.data / file.relative_to(ROOT / "datasets" / "cifar10_sample")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes()[:24 * 3073])
        for file in (ROOT / "datasets" / "cifar10_sample").rglob("*.txt"):
            shutil.copy(file, self.data / file.relative_to(ROOT / "datasets" / "cifar10_sample"))
        self.file.write_text(EXPERIMENT.replace("DATA", str(self.data)))
        self.home = self.folder / "home"

    def run_trainer(self, *args, ranks=1, **options):
        launch = ["launch", "--nproc-per-node", ranks] if ranks > 1 else []
        return trainer(*launch, "--config", self.file, *args, env={**os.environ, "TRAINER_HOME": str(self.home)}, **options)

    def train(self, name, *args, ranks=1):
        run_dir = self.folder / name
        run = self.run_trainer("--run-dir", run_dir, *args, ranks=ranks)
        self.assertEqual(run.returncode, 0, run.err)
        return run_dir

    def log(self, run_dir):
        return (run_dir / "train.log").read_text()

    def losses(self, run_dir):
        return [event["loss"] for event in equal_runs.results_of(run_dir)[0]]

    def assert_close(self, one, two, tolerance):
        self.assertEqual(len(one), len(two))
        for a, b in zip(one, two):
            self.assertAlmostEqual(a, b, delta=tolerance * abs(a))

    def features(self):
        return sorted(self.home.glob("features/*"))


class WrongFilesTest(FinetuneCase):
    def test_each_message(self):
        for args, message in WRONG:
            with self.subTest(args):
                run = self.run_trainer("--run-dir", self.folder / "run", *args)
                self.assertEqual(run.returncode, 2, run.err)
                self.assertIn(message, run.err)
                self.assertFalse((self.folder / "run").exists())


class CachedFeaturesTest(FinetuneCase):
    def test_a_run_is_the_same_with_them(self):
        # Both runs use the batch size with which features are computed, because LibTorch's roundings depend on it, and no fused operators,
        # which would round differently in evaluation.
        computed = self.train("computed", "validation.batch_size=20", "runtime.fuse=off")
        cached = self.train("cached", CACHED, "validation.batch_size=20", "runtime.fuse=off")
        self.assertEqual(equal_runs.results_of(computed)[0], equal_runs.results_of(cached)[0])
        self.assertEqual(equal_runs.tensors(computed), equal_runs.tensors(cached))
        log = self.log(cached)
        self.assertRegex(log, r"the features of 120 training images were computed for all epochs; they are stored in \S+/home/features/")
        # The checkpoint contains the whole network, which is applied to images.
        evaluated = trainer("eval", "--checkpoint", cached / "checkpoints" / "last.pt")
        self.assertEqual(evaluated.returncode, 0, evaluated.err)
        loss = re.search(r"validation  loss ([\d.]+)", evaluated.out).group(1)
        self.assertIn(f"validation  epoch 3/3  loss {loss}", log)

    def test_a_later_run_finds_them(self):
        first = self.train("first", CACHED)
        files = self.features()
        self.assertEqual([file.name.rsplit("-", 1)[0] for file in files], ["resnet20-cifar10-training", "resnet20-cifar10-validation"])
        second = self.train("second", CACHED, "optimizer.lr=0.01", "experiment=y")
        self.assertRegex(self.log(second), r"the features of 120 training images were found in \S+\.safetensors\n")
        self.assertEqual(equal_runs.results_of(first)[0], equal_runs.results_of(second)[0])
        self.assertEqual(self.features(), files)

    def test_what_changes_them_is_noticed(self):
        args = [CACHED, "training.epochs=1", "validation.every_epochs=null"]
        self.train("first", *args)
        expected = 1
        for change, is_other in ((["seed=7"], True), (["dataset.train_transforms=[]"], True), (["dataset.validation_split=0.2"], True),
                                 (["model.num_classes=10"], False), (["optimizer.lr=1"], False), ([], True)):
            with self.subTest(change):
                if not change:
                    os.utime(next(self.data.rglob("data_batch_1.bin")))
                self.train(f"run{expected}{is_other}{len(change)}{change}".replace("/", ""), *args, *change)
                expected += is_other
                self.assertEqual(len([file for file in self.features() if "training" in file.name]), expected)

    @unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
    def test_images_in_another_order_are_noticed(self):
        for i in range(4):
            (self.folder / f"{i}.ppm").write_bytes(b"P6\n32 32\n255\n" + bytes([50 * i]) * 3072)
        rows = [f"{self.folder}/{i}.ppm,{i % 2}\n" for i in range(4)]
        csv = [f"dataset={{name: csv, root: {self.folder}, train: {self.folder}/train.csv, validation: {self.folder}/train.csv}}", "dataset.train_transforms=[]",
               "dataset.validation_transforms=[resize: {size: [32, 32]}]", "dataset.train_transforms=[resize: {size: [32, 32]}]", "dataloader.global_batch_size=2"]
        for number, order in enumerate(([0, 1, 2, 3], [0, 1, 2, 3], [3, 1, 2, 0]), 1):
            (self.folder / "train.csv").write_text("".join(rows[i] for i in order).replace(f"{self.folder}/", ""))
            log = self.log(self.train(f"run{number}", CACHED, *csv))
            self.assertEqual("were found" in log, number == 2, log)

    def test_what_a_killed_run_has_left_is_removed(self):
        (self.home / "features").mkdir(parents=True)
        left = self.home / "features" / ".0123.partial"
        other = left.with_name(".4567.partial")
        left.write_bytes(b"x")
        os.utime(left, (time.time() - 90_000,) * 2)
        other.write_bytes(b"x")
        self.train("run", CACHED)
        self.assertFalse(left.exists())
        self.assertTrue(other.exists(), "another process may be writing this file")

    def test_a_folder_that_cannot_be_made(self):
        self.home.write_text("")
        run = self.run_trainer("--run-dir", self.folder / "run", CACHED)
        self.assertEqual(run.returncode, 3, run.err)
        self.assertRegex(run.err, r"cannot store the features of training.cache_features: .*; set TRAINER_HOME to a writable folder, or set training.cache_features: false")

    def test_a_file_that_grows_too_large(self):
        run = self.run_trainer("--run-dir", self.folder / "run", CACHED, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
        self.assertEqual(run.returncode, 3, run.err)
        self.assertRegex(run.err, rf"error: cannot store the features of training.cache_features: cannot write {self.home}/features/\S+: File too large; set TRAINER_HOME")

    def test_a_damaged_file(self):
        self.train("first", CACHED)
        file = self.features()[0]
        content = file.read_bytes()
        file.write_bytes(content[:-4])
        run = self.run_trainer("--run-dir", self.folder / "second", CACHED)
        self.assertEqual(run.returncode, 3, run.err)
        self.assertIn(f"{file}: this file does not contain the features of 120 samples; remove it, so that they are computed again", run.err)

    def test_two_ranks_are_as_one(self):
        exact = [CACHED, "runtime.dtype=float64"]
        one = self.train("one", *exact)
        files = {file.name: file.read_bytes() for file in self.features()}
        shutil.rmtree(self.home)
        two = self.train("two", *exact, ranks=2)
        self.assertEqual(sorted(files), [file.name for file in self.features()])
        for file in self.features():
            header = 8 + int.from_bytes(files[file.name][:8], "little")
            self.assertEqual(files[file.name][header:], file.read_bytes()[header:])
        self.assert_close(self.losses(one), self.losses(two), 1e-12)

    def test_resumed_is_as_straight_through(self):
        straight = self.train("straight", CACHED)
        self.train("resumed", CACHED, "training.epochs=1")
        shutil.rmtree(self.home)
        resumed = self.train("resumed", CACHED, "--resume", "auto")
        self.assertEqual(equal_runs.tensors(straight), equal_runs.tensors(resumed))

    def test_data_without_files(self):
        synthetic = ["dataset={name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 64, num_validation: 16}", "dataset.train_transforms=[]",
                     "dataset.validation_transforms=[]"]
        run_dir = self.train("run", CACHED, *synthetic)
        self.assertRegex(self.log(run_dir), r"the features of 64 training images were computed for all epochs\n")
        self.assertEqual(self.features(), [])


class UnfreezeTest(FinetuneCase):
    ARGS = ["training.unfreeze_after=1", "distributed.sync_batch_norm=true"]

    def test_the_log_tells_when(self):
        run_dir = self.train("run", *self.ARGS, "training.epochs=2")
        self.assertIn("650 of 269722 parameters are trained, the others are frozen (model.freeze) for 1 epoch (training.unfreeze_after)", self.log(run_dir))

    def test_resumed_is_as_straight_through(self):
        # An epoch has six steps.
        args = [*self.ARGS, "training.epochs=null", "validation.every_epochs=null"]
        straight = self.train("straight", *args, "training.steps=18")
        for stop in (4, 6, 9):
            with self.subTest(stop):
                self.train(str(stop), *args, f"training.steps={stop}")
                resumed = self.train(str(stop), *args, "training.steps=18")
                self.assertEqual(equal_runs.tensors(straight), equal_runs.tensors(resumed))

    def test_two_ranks_are_as_one(self):
        one, two = (self.losses(self.train(str(ranks), *self.ARGS, "runtime.dtype=float64", ranks=ranks)) for ranks in (1, 2))
        self.assert_close(one, two, 1e-9)


if __name__ == "__main__":
    unittest.main()
