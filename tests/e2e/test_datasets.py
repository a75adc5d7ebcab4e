"""Messages about the files of data sets, and copies of a data set on a local disk. TRAINER_BINARY is the program; TRAINER_OPENCV is 0 if it
was built without OpenCV."""

import fcntl
import gzip
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import FolderCase, trainer  # noqa: E402
from test_image_folder import metrics, plain_png  # noqa: E402
from troubleshooting import plants  # noqa: E402

# Runs a command with a small disk: a file system that only this process and its children see.
SMALL_DISK = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k none "$0" || exit 99; exec "$@"']


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class DatasetsTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.local = self.folder / "local"

    def write_csv(self, name, *lines):
        """A CSV file in the folder of the images."""
        file = self.folder / "images" / name
        file.write_text("".join(f"{line}\n" for line in lines))
        return file

    def write_images(self, num_images):
        """Images of two classes, and the CSV file that lists them."""
        (self.folder / "images").mkdir()
        for i in range(num_images):
            (self.folder / "images" / f"{i}.png").write_bytes(plain_png(i))
        return self.write_csv("train.csv", *(f"{i}.png,{'cat' if i % 2 else 'dog'}" for i in range(num_images)))

    def arguments(self, *settings):
        """The arguments of a short training."""
        config = self.folder / "experiment.yaml"
        config.write_text("experiment: datasets\nmodel: {name: resnet20}\ndataloader: {batch_size: 4}\ntraining: {epochs: 1}\n")
        return ["--config", config, "--run-dir", self.folder / "run", *settings]

    def csv_arguments(self, *settings):
        transforms = "[{resize: {size: [8, 8]}}]"
        return self.arguments("dataset.name=csv", f"dataset.train={self.folder}/images/train.csv", f"dataset.train_transforms={transforms}",
                              f"dataset.validation_transforms={transforms}", "dataset.validation_split=0.25", *settings)

    def refuse(self, row, code, arguments):
        run = trainer(*arguments)
        row.check(self, run.err, run.returncode)
        self.assertEqual(run.returncode, code)
        return run.err

    @plants("A line of a CSV file is wrong")
    def test_a_wrong_line(self, row):
        self.write_images(4)
        self.write_csv("train.csv", "0.png,cat", "1.png")
        self.refuse(row, 2, self.csv_arguments())

    @plants("A label is only in the CSV file for validation")
    def test_a_label_for_validation_alone(self, row):
        self.write_images(4)
        val = self.write_csv("val.csv", "0.png,cat", "1.png,cow")
        self.refuse(row, 3, self.csv_arguments(f"dataset.validation={val}", "dataset.validation_split=0"))

    @plants("The files of CIFAR, MNIST or Tiny ImageNet are not there")
    def test_files_that_are_not_there(self, row):
        for name, code in (("cifar100", 3), ("fashion_mnist", 3)):
            with self.subTest(name):
                self.refuse(row, code, self.arguments(f"dataset.name={name}", f"dataset.root={self.folder}"))

    @plants("A file of CIFAR, MNIST or Tiny ImageNet is damaged")
    def test_a_file_that_is_too_short(self, row):
        for name, magic in (("train-images-idx3-ubyte", (2051, 2, 28, 28)), ("train-labels-idx1-ubyte", (2049, 2))):
            (self.folder / f"{name}.gz").write_bytes(gzip.compress(struct.pack(f">{len(magic)}I", *magic)))
        self.refuse(row, 3, self.arguments("dataset.name=mnist", f"dataset.root={self.folder}"))

    def test_a_copy_of_the_files_that_a_csv_file_names(self):
        self.write_images(8)
        (self.folder / "images" / "other.png").write_bytes(plain_png(9))
        self.ran(*self.csv_arguments())
        in_place = metrics(self.folder / "run")
        shutil.rmtree(self.folder / "run")
        copied = self.ran(*self.csv_arguments(f"dataset.stage_to={self.local}"))
        self.assertRegex(copied.err, rf"copying .* of 8 files from {self.folder}/images to {self.local}/trainer-{os.geteuid()}\n")
        self.assertEqual(metrics(self.folder / "run"), in_place)
        self.assertEqual(list(self.local.glob("*/*")), [])

    def test_names_of_files_need_not_be_utf8(self):
        train = self.write_images(8)
        latin = "caf\udce9"  # the byte 0xe9
        (train.parent / "0.png").rename(train.parent / f"{latin}.png")
        train.write_bytes(os.fsencode(train.read_text().replace("0.png", f"{latin}.png")))
        self.ran(*(self.folder / latin if value == self.folder / "run" else value for value in self.csv_arguments()))
        command = json.loads((self.folder / latin / "environment.json").read_text())["command_line"]
        self.assertIn(f"{self.folder}/caf\ufffd", command)

    def test_weights_that_change_between_resumes(self):
        self.write_images(8)
        weights = self.folder / "weights.txt"
        weights.write_text("\ufeff" + "1\n" * 8)
        arguments = self.csv_arguments(f"dataloader.sampler={{name: weighted, weights: {weights}}}")
        self.assertEqual(trainer(*arguments).returncode, 0)
        moved = weights.rename(self.folder / "moved.txt")
        self.ran(*arguments, f"dataloader.sampler.weights={moved}", "training.epochs=2", "training.extend=true")
        weights.write_text("1\n" * 7 + "0\n")
        run = trainer(*arguments, "training.epochs=3", "training.extend=true")
        self.assertEqual(run.returncode, 2, run.err)
        self.assertIn(f"since this checkpoint, {weights} has changed, so other samples would be drawn", run.err)

    @plants("A CSV file names images outside of the folder that is copied")
    def test_images_elsewhere(self, row):
        self.write_images(4)
        self.write_csv("train.csv", "0.png,cat", f"{self.folder}/images/1.png,dog")
        self.refuse(row, 3, self.csv_arguments(f"dataset.stage_to={self.local}"))
        self.assertFalse(self.local.exists())

    @plants("The disk of `dataset.stage_to` is too small")
    def test_too_little_space(self, row):
        self.write_images(4)
        (self.folder / "images" / "0.png").write_bytes(bytes(100_000))
        self.local.mkdir()
        arguments = self.csv_arguments(f"dataset.stage_to={self.local}")
        run = subprocess.run([*SMALL_DISK, self.local, os.environ["TRAINER_BINARY"], *map(str, arguments)], capture_output=True, text=True, timeout=60)
        if run.returncode in (1, 99) and "error: " not in run.stderr:
            self.skipTest("this process may not mount a file system")
        row.check(self, run.stderr, run.returncode)

    @plants("The copy of `dataset.stage_to` is outdated and in use")
    def test_an_outdated_copy_in_use(self, row):
        train = self.write_images(4)
        staged = self.csv_arguments(f"dataset.stage_to={self.local}")
        # A run that fails does not remove its copy.
        self.assertEqual(trainer(*staged, "dataset.validation_split=0.001").returncode, 2)
        (copy,) = self.local.glob("*/*")
        os.utime(train.parent / "0.png", (0, 0))
        with open(copy / ".in_use.1", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.refuse(row, 3, staged)


if __name__ == "__main__":
    unittest.main()
