"""Training on folders of image files. TRAINER_BINARY is the program; TRAINER_OPENCV is 0 if it was built without OpenCV."""

import contextlib
import json
import os
import pathlib
import re
import struct
import sys
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import ROOT, FolderCase, events, trainer  # noqa: E402
from troubleshooting import plants  # noqa: E402

QUICKSTART = ROOT / "configs" / "quickstart.yaml"
SAMPLE = ROOT / "datasets" / "cifar10_sample" / "cifar-10-batches-bin"
# A record of CIFAR-10: the label, and three planes of 32 x 32 pixels.
PLANE = 32 * 32
RECORD = 1 + 3 * PLANE
# The extensions of image files, as messages list them.
ENDINGS = ".jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp"


def quickstart_on(folder):
    """Arguments for the experiment quickstart on a folder with images of 32 x 32 pixels."""
    # Image files can have any size, so each list must begin with a transform that makes the image 32 x 32. It changes nothing here.
    normalize = "{normalize: {mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616]}}"
    crop_and_flip = "{random_crop: {size: 32, padding: 4}}, {random_horizontal_flip: {p: 0.5}}"
    return ["--config", QUICKSTART, "dataset.name=image_folder", f"dataset.root={folder}",
            f"dataset.train_transforms=[{{resize: {{size: [32, 32]}}}}, {crop_and_flip}, {normalize}]",
            f"dataset.validation_transforms=[{{center_crop: {{size: 32}}}}, {normalize}]"]


def metrics(run_dir):
    """The results that must be the same in equal runs."""
    varying = ("time", "seconds", "images_per_second", "data_wait", "queue_depth", "memory_bytes")
    return [{key: value for key, value in event.items() if key not in varying and not key.startswith(("memory", "cuda"))}
            for kind in ("train", "validation") for event in events(run_dir, kind)]


def png(height, width, rgb):
    """A PNG file. `rgb`: the pixels row by row, three bytes for each."""
    def part(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    rows = b"".join(b"\0" + rgb[3 * width * y:3 * width * (y + 1)] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def plain_png(number):
    """One of many small images, each with its own colour and size."""
    height, width = 20 + number % 7, 30 - number % 5
    return png(height, width, bytes((37 * number % 256, 101 * number % 256, 53 * number % 256)) * (height * width))


def npy(height, width, channels, first):
    """A file of NumPy with 8-bit values. `first`: the first of them."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({height}, {width}, {channels}), }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes((7 * i + first) % 251 for i in range(height * width * channels))


def write_images(folder, classes, num_images, first=0):
    """Writes `num_images` small images into a folder for each class. `first`: the number of the first image."""
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(num_images):
            (folder / name / f"{i:05}.png").write_bytes(plain_png(first + num_images * label + i))


def sample_records(names, num_records):
    """The first records of each of the sample's files, sorted by class."""
    records = []
    for name in names:
        content = (SAMPLE / name).read_bytes()
        records += [content[RECORD * i:RECORD * (i + 1)] for i in range(num_records)]
    return sorted(records, key=lambda record: record[0])


def write_batches(folder, train, validation):
    """Writes the records as the files of CIFAR-10, in their order."""
    batches = folder / "cifar-10-batches-bin"
    batches.mkdir(parents=True)
    size = len(train) // 5
    for i in range(5):
        (batches / f"data_batch_{i + 1}.bin").write_bytes(b"".join(train[size * i:size * (i + 1)]))
    (batches / "test_batch.bin").write_bytes(b"".join(validation))


def write_class_folders(folder, records):
    """Writes the records as PNG files in a folder for each class, where the names of the files have the order of the records."""
    # The names in batches.meta.txt are sorted, so the folders have the labels of the records.
    names = (SAMPLE / "batches.meta.txt").read_text().split()
    for i, record in enumerate(records):
        path = folder / names[record[0]] / f"{i:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        planes = [record[1 + PLANE * c:1 + PLANE * (c + 1)] for c in range(3)]
        path.write_bytes(png(32, 32, bytes(value for pixel in zip(*planes) for value in pixel)))


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class ImageFolderTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"

    def write_config(self, *lines):
        """The shortest experiment on the images."""
        config = self.folder / "images.yaml"
        config.write_text("\n".join(["experiment: images", "model: {name: resnet18}", f"dataset: {{name: image_folder, root: {self.data}}}",
                                     "dataloader: {batch_size: 4}", "training: {epochs: 1}", *lines]) + "\n")
        return config

    def train(self, *args, run_dir=None):
        return self.ran(*args, "--run-dir", run_dir or self.run_dir)

    def test_a_folder_trains_as_the_same_images_in_another_format(self):
        train = sample_records([f"data_batch_{i}.bin" for i in range(1, 6)], 60)
        validation = sample_records(["test_batch.bin"], 100)
        write_batches(self.folder / "batches", train, validation)
        write_class_folders(self.data / "train", train)
        write_class_folders(self.data / "val", validation)
        settings = ["training.epochs=2", "validation.every_epochs=1", "logging.every_steps=1", "runtime.threads=2", "amp.enabled=false"]
        reference = self.folder / "reference"
        self.train("--config", QUICKSTART, f"dataset.root={self.folder / 'batches'}", *settings, run_dir=reference)
        self.assertEqual(len(metrics(reference)), 12 + 2)
        for workers in (0, 1, 4):
            with self.subTest(workers=workers):
                run_dir = self.folder / f"{workers}_workers"
                run = self.train(*quickstart_on(self.data), *settings, f"dataloader.num_workers={workers}", run_dir=run_dir)
                self.assertIn(f"{self.data}/train: 300 images in 10 classes\n{self.data}/val: 100 images in 10 classes\n", run.err)
                self.assertEqual(metrics(run_dir), metrics(reference))
                diff = trainer("checkpoint", "diff", reference / "checkpoints" / "last.pt", run_dir / "checkpoints" / "last.pt")
                # The checkpoints differ only in the text of the configuration and in durations.
                self.assertIn("config: ", diff.out)
                self.assertEqual(re.findall(r"(?m)^(?:model|optimizer)\..*", diff.out), [], diff.err)

    def test_the_shortest_experiment(self):
        write_images(self.data / "train", ("cat", "dog"), 4)
        write_images(self.data / "val", ("cat", "dog"), 1, first=8)
        self.train("--config", self.write_config("optimizer: {name: sgd, lr: 0.001}"))
        self.assertEqual([event["num_samples"] for event in events(self.run_dir, "validation")], [2])
        resolved = (self.run_dir / "config.yaml").read_text()
        usual = "{normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}"
        self.assertIn("\n  num_classes: 2\n", resolved)
        self.assertIn("\n  validation_split: 0\n", resolved)
        self.assertRegex(resolved, r"(?m)^  train_transforms:\n    - \{random_resized_crop: \{size: 224, .*\}\}\n"
                         rf"    - \{{random_horizontal_flip: .*\}}\n    - {re.escape(usual)}\n  validation_transforms:\n"
                         rf"    - \{{resize: \{{size: 256, .*\}}\}}\n    - \{{center_crop: \{{size: 224\}}\}}\n    - {re.escape(usual)}$")
        again = self.folder / "again"
        self.train("--config", self.run_dir / "config.yaml", run_dir=again)
        self.assertEqual(metrics(again), metrics(self.run_dir))
        self.assertEqual((again / "config.yaml").read_text(), resolved)

    def test_a_tenth_is_held_out_without_a_folder_for_validation(self):
        for name in ("only_train/train", "only_classes"):
            with self.subTest(name):
                self.data = self.folder / name.split("/")[0]
                write_images(self.folder / name, ("cat", "dog"), 10)
                run_dir = self.folder / f"run_{self.data.name}"
                self.train("--config", self.write_config("optimizer: {name: sgd, lr: 0.001}"), run_dir=run_dir)
                # 18 images make four batches; the incomplete last batch is skipped.
                self.assertEqual([event["step"] for event in events(run_dir, "train")][-1:], [4])
                self.assertEqual([event["num_samples"] for event in events(run_dir, "validation")], [2])
                self.assertIn("\n  validation_split: 0.1\n", (run_dir / "config.yaml").read_text())

    def test_ranks_give_the_results_of_one_process(self):
        train = sample_records([f"data_batch_{i}.bin" for i in range(1, 6)], 12)
        write_class_folders(self.data / "train", train)
        write_class_folders(self.data / "val", sample_records(["test_batch.bin"], 50))
        settings = [*quickstart_on(self.data), "training.epochs=2", "validation.every_epochs=1", "validation.batch_size=16",
                    "dataloader.global_batch_size=20", "optimizer.lr=0.001", "logging.every_steps=1", "runtime={device: cpu, dtype: float64, threads: 1}"]
        one, two = self.folder / "one", self.folder / "two"
        self.train(*settings, run_dir=one)
        self.train("launch", "--nproc-per-node", "2", *settings, run_dir=two)
        self.assertEqual([len(events(two, kind)) for kind in ("train", "validation")], [6, 2])
        for kind in ("train", "validation"):
            for ours, theirs in zip(events(two, kind), events(one, kind), strict=True):
                self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=1e-10)
                keys = ("top1", "step", "epoch") if kind == "train" else ("top1", "top5", "num_samples", "step", "epoch")
                self.assertEqual([ours[key] for key in keys], [theirs[key] for key in keys])

    def refuse(self, code, message, *args):
        """Trains, and compares the last line with `message`."""
        run = trainer("--config", self.write_config(), "--run-dir", self.run_dir, "dataloader.num_workers=0", *args)
        self.assertEqual((run.returncode, run.err.splitlines()[-1]), (code, f"error: {message}"), run.err)
        return run.err

    @plants("The folder of a data set is missing, or has no class folders")
    def test_missing_folders(self, row):
        config = self.folder / "images.yaml"
        remedy = "set dataset.root to a folder that contains one folder of images per class, either directly or in train/ and val/"
        position = f"{config}:3:37: dataset.root"
        row.check(self, self.refuse(2, f"{position}: there is no folder {self.data}; {remedy}"), 2)
        self.data.mkdir()
        row.check(self, self.refuse(2, f"{position}: {self.data} has no class folders; {remedy}"), 2)
        (self.data / "train").mkdir()
        row.check(self, self.refuse(2, f"{position}: {self.data}/train has no class folders; {remedy}"), 2)
        self.assertFalse(self.run_dir.exists())

    @plants("A class has no images")
    def test_a_class_without_images(self, row):
        write_images(self.data, ("cat", "dog"), 1)
        for path in (self.data / "dog").iterdir():
            path.unlink()
        message = f"{self.data}/dog has no images (files ending in {ENDINGS})"
        row.check(self, self.refuse(3, f"{message}; add images, or remove the folder"), 3)
        (self.data / "dog" / "notes.txt").write_text("no image")
        row.check(self, self.refuse(3, f"{message} among its 1 file; add images, or remove the folder"), 3)

    @plants("A class is only in the validation set")
    def test_a_class_for_validation_alone(self, row):
        write_images(self.data / "train", ("cat", "dog"), 4)
        write_images(self.data / "val", ("cat", "cow"), 1)
        message = f'{self.data}/val has the class folder "cow", which {self.data}/train does not have; remove it, or add training images of that class'
        row.check(self, self.refuse(3, message), 3)

    @plants("An image file is damaged, or no image")
    def test_files_that_cannot_be_decoded(self, row):
        write_images(self.data / "train", ("cat", "dog"), 4)
        write_images(self.data / "val", ("cat", "dog"), 1)
        whole = plain_png(3)
        damaged = bytearray(whole)
        damaged[-20] ^= 1
        no_image = "it is not a supported image file (JPEG, PNG, WebP, BMP, TIFF, PGM or PPM), or its beginning is damaged; convert or replace it"
        gif = "it is a GIF image, which is not supported; convert it to PNG or JPEG"
        for name, content, reason in (("00003.png", whole[:-20], "the file ends too early"),
                                      ("00003.png", damaged, "it is damaged: a checksum is wrong"),
                                      ("00003.png", b"", "cannot be read: the file is empty"), ("text.jpg", b"not an image\n", no_image),
                                      ("00003.jpg", b"GIF89a and more", gif)):
            with self.subTest(reason), self.replaced(self.data / "train" / "cat" / "00003.png", name, content) as path:
                row.check(self, self.refuse(3, f"sample 3, {path}: {reason}"), 3, FILE=path)
        with self.subTest("validation"), self.replaced(self.data / "val" / "dog" / "00000.png", "00000.png", whole[:50]) as path:
            row.check(self, self.refuse(3, f"sample 1, {path}: the file ends too early"), 3, FILE=path)

    @contextlib.contextmanager
    def replaced(self, path, name, content):
        """Replaces the file `path` by a file `name` beside it while the context lasts."""
        kept, other = path.read_bytes(), path.with_name(name)
        path.unlink()
        other.write_bytes(content)
        yield other
        other.unlink()
        path.write_bytes(kept)

    @plants("The network has another number of outputs than the data set has classes")
    def test_another_number_of_classes(self, row):
        write_images(self.data, ("cat", "dog"), 4)
        message = "command line: model.num_classes: resnet18 has 10 outputs, but image_folder has 2 classes"
        row.check(self, self.refuse(2, message, "model.num_classes=10"), 2)

    @plants("The images have different sizes after the transforms")
    def test_different_sizes(self, row):
        write_images(self.data, ("cat", "dog"), 4)
        message = ("command line: dataset.train_transforms: the images have different sizes after this list, and a batch needs one size; "
                   "add center_crop, random_crop or random_resized_crop, or give resize a size of [height, width]")
        row.check(self, self.refuse(2, message, "dataset.train_transforms=[{resize: {size: 256}}]"), 2)

    def damage(self, path):
        """Truncates a file in the middle of its pixels."""
        path.write_bytes(path.read_bytes()[:60])

    def test_data_check_lists_every_bad_file(self):
        write_images(self.data / "train", ("cat", "dog"), 3)
        write_images(self.data / "val", ("cat", "dog"), 1)
        config = self.write_config()
        run = trainer("data", "check", "--config", config)
        self.assertEqual((run.returncode, run.out), (0, "8 samples read, all good\n"), run.err)
        self.damage(self.data / "train/dog/00001.png")
        (self.data / "train/cat/00000.png").write_bytes(b"")
        (self.data / "val/dog/00000.png").write_text("no image")
        run = trainer("data", "check", "--config", config)
        self.assertEqual(run.returncode, 3, run.err)
        lines = run.out.splitlines()
        self.assertEqual(lines[:2] + lines[3:],
                         [f"training sample 0, {self.data}/train/cat/00000.png: cannot be read: the file is empty",
                          f"training sample 4, {self.data}/train/dog/00001.png: the file ends too early",
                          "8 samples read, 3 cannot be used"])
        found = trainer("data", "check", "--config", config, "--json")
        self.assertEqual(found.returncode, 3, found.err)
        told = json.loads(found.out)
        self.assertEqual([f"{bad['part']} {bad['sample']}: {bad['reason']}" for bad in told["unusable"]], lines[:3])
        self.assertEqual((told["samples"], told["warnings"]), (8, []))
        self.assertRegex(lines[2], f"^validation sample 1, {self.data}/val/dog/00000.png: it is not a supported image file")

    def write_odd_images(self):
        """Writes two classes for training and validation, including images and files about which the program warns."""
        write_images(self.data / "train", ("cat", "dog"), 4)
        write_images(self.data / "val", ("cat", "dog"), 1, first=20)
        cat = self.data / "train" / "cat"
        exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
        jpeg = (ROOT / "tests/golden/jpegs/444.jpg").read_bytes()
        (cat / "turned.jpg").write_bytes(jpeg[:2] + struct.pack(">HH", 0xFFE1, len(exif) + 8) + b"Exif\0\0" + exif + jpeg[2:])
        (cat / "bits.png").write_bytes((ROOT / "tests/golden/images/rgb_16_bits.png").read_bytes())
        (cat / "IMG_1.HEIC").touch()
        (cat / "IMG_2.heic").touch()
        (self.data / "train" / "dog" / "notes.txt").touch()

    def test_stacks_and_arrays_of_which_a_user_should_know(self):
        """Only the first of a file's images is used, and channels are expected to be the last axis."""
        fields = ((256, 2), (257, 1), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1), (279, 2))
        page = struct.pack("<H", len(fields)) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in fields)
        second = 10 + len(page) + 4
        stack = b"II*\0" + struct.pack("<I", 10) + b"ab" + page + struct.pack("<I", second) + page + struct.pack("<I", 0)
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 40, 40), }\n"
        array = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + bytes(4 * 3 * 40 * 40)
        for name, content, mode, text in (
                ("stack.tif", stack, "rgb", " are TIFF files of several images, of which only the first is used; save each image as a file of its own; "),
                ("array.npy", array, "raw", " are arrays that look like [channels, height, width], but are read as [height, width, channels]; "
                                            "save them with numpy.moveaxis(array, 0, -1); ")):
            with self.subTest(name):
                root = self.folder / name
                for part, kind in (("train", "cat"), ("train", "dog"), ("val", "cat"), ("val", "dog")):
                    folder = root / part / kind
                    folder.mkdir(parents=True)
                    (folder / name).write_bytes(content)
                arguments = [f"dataset.root={root}", f"dataset.mode={mode}", "dataset.train_transforms=[center_crop: {size: 32}]",
                             "dataset.validation_transforms=[center_crop: {size: 32}]"]
                run = self.ran("data", "check", "--config", QUICKSTART, "dataset.name=image_folder", *arguments)
                first = f"the first is training sample 0, {root}/train/cat/{name} (cat)"
                self.assertEqual(self.warnings(run), [f"warning: 4 of 4 images{text}{first}"])

    def warnings(self, run):
        return [line for line in run.err.splitlines() if line.startswith("warning: ")]

    def test_images_of_which_a_user_should_know(self):
        self.write_odd_images()
        train = self.data / "train"
        ignored = (f"warning: {train}: 3 files are not read, because they have no image extension that this program reads; "
                   f"the first is {train}/cat/IMG_1.HEIC")
        turned = " have an EXIF orientation and are turned upright, "
        bits = " have 16 bits per channel, of which only the upper 8 are used, as in Pillow "
        for args in (["data", "check", "--config", self.write_config()], ["init", "--data", self.data, "--output", self.folder / "new.yaml"]):
            with self.subTest(args[0]):
                run = self.ran(*args)
                found = self.warnings(run)
                self.assertEqual((len(found), found[0]), (3, ignored), run.err)
                self.assertIn(f"1 of 12 images{turned}", found[1])
                self.assertIn(f"the first is training sample 5, {train}/cat/turned.jpg (cat)", found[1])
                self.assertIn(f"1 of 12 images{bits}", found[2])
        run = self.train("--config", self.write_config(), "model.name=resnet20", "dataset.train_transforms=[center_crop: {size: 32}]",
                         "dataset.validation_transforms=[center_crop: {size: 32}]", "training={steps: 1}")
        found = self.warnings(run)
        self.assertEqual((len(found), found[0]), (3, ignored), run.err)
        self.assertIn(f"1 of 10 images{turned}", found[1])
        self.assertIn(f"1 of 10 images{bits}", found[2])

    def test_files_that_cannot_be_read_are_left_out_on_request(self):
        write_images(self.data / "train", ("cat", "dog"), 9)
        write_images(self.data / "val", ("cat", "dog"), 5)
        self.damage(self.data / "train/dog/00001.png")
        self.damage(self.data / "val/cat/00002.png")
        settings = ["--config", self.write_config("optimizer: {name: sgd, lr: 0.001}"), "model.name=resnet20", "dataset.on_error=skip", "training.epochs=2",
                    "dataset.train_transforms=[center_crop: {size: 32}]", "dataset.validation_transforms=[center_crop: {size: 32}]",
                    "dataloader={global_batch_size: 6}", "logging.every_steps=1", "runtime={device: cpu, dtype: float64, threads: 1}"]
        run = self.train(*settings)
        for path in ("train/dog/00001.png", "val/cat/00002.png"):
            self.assertEqual(run.err.count(f"{self.data}/{path}: the file ends too early"), 1, run.err)
        self.assertEqual(run.err.count("warning: skipped (dataset.on_error: skip): sample 10, "), 1, run.err)
        validations = events(self.run_dir, "validation")
        self.assertEqual([event["num_samples"] for event in validations], [9, 9])
        self.assertEqual((self.run_dir / "classes.txt").read_text(), "cat\ndog\n")
        # Two ranks skip the same images as one, and compute the same results.
        other = self.folder / "two"
        self.ran("launch", "--nproc-per-node", "2", "--", *settings, "--run-dir", other)
        for kind in ("train", "validation"):
            self.assertEqual(len(events(self.run_dir, kind)), len(events(other, kind)))
            for one, two in zip(events(self.run_dir, kind), events(other, kind)):
                self.assertEqual(one["top1"], two["top1"])
                self.assertAlmostEqual(one["loss"], two["loss"], delta=1e-9 * one["loss"])

    def write_raw_images(self, channels):
        files = [self.data / split / name / f"{i}.npy" for split, count in (("train", 3), ("val", 1)) for name in ("cat", "dog") for i in range(count)]
        for number, path in enumerate(files):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(npy(32, 32, channels, number))
        return files

    def test_channels_of_raw_images_are_unknown_without_the_images(self):
        for channels in (2, 4):
            with self.subTest(channels):
                self.write_raw_images(channels)
                config = self.folder / f"{channels}.yaml"
                self.assertEqual(trainer("init", "--data", self.data, "--output", config).returncode, 0)
                validation = ["validate", "--config", config]
                run = trainer(*validation)
                self.assertEqual((run.returncode, "assumed" in run.out + run.err), (0, False), run.out + run.err)
                moved = self.folder / f"{channels}_channels"
                self.data.rename(moved)
                for settings, assumed in (([], channels), (["dataset.train_transforms=[center_crop: {size: 32}]",
                                                            "dataset.validation_transforms=[center_crop: {size: 32}]", "model.in_channels=7"], 7)):
                    run = self.ran(*validation, *settings)
                    self.assertIn(f"{assumed} channels are assumed, because no image can be read to determine their number", run.out + run.err)
                run = trainer("--config", config, "--run-dir", self.run_dir)
                self.assertEqual(run.returncode, 2, run.err)
                self.assertNotIn("channels", run.err)

    def test_channels_are_those_of_the_first_raw_image_that_can_be_read(self):
        files = self.write_raw_images(channels=4)
        self.damage(files[0])
        config = self.write_config("optimizer: {name: sgd, lr: 0.001}", "runtime: {device: cpu, threads: 1}")
        settings = ["--config", config, "model.name=resnet20", "dataloader.drop_last=false", *(f"dataset.{split}_transforms=[center_crop: {{size: 32}}]" for split in ("train", "validation"))]
        for mode in ("raw", "auto"):
            with self.subTest(mode):
                check = trainer("data", "check", *settings, f"dataset.mode={mode}")
                self.assertEqual(check.returncode, 3, check.err)
                self.assertEqual([path for path in files if str(path) in check.out + check.err], files[:1], check.out + check.err)
                run = self.train(*settings, f"dataset.mode={mode}", "dataset.on_error=skip", run_dir=self.folder / mode)
                self.assertEqual(run.err.count(f"warning: skipped (dataset.on_error: skip): sample 0, {files[0]}: the file ends too early"), 1, run.err)
                self.assertIn("in_channels: 4", (self.folder / mode / "config.yaml").read_text())
                run = trainer(*settings, f"dataset.mode={mode}", "--run-dir", self.run_dir)
                self.assertEqual(run.returncode, 3, run.err)
                self.assertIn(f"error: sample 0, {files[0]}: the file ends too early", run.err)
        for path in files[1:]:
            self.damage(path)
        run = trainer(*settings, "dataset.mode=raw", "dataset.on_error=skip", "--run-dir", self.run_dir)
        self.assertEqual(run.returncode, 2, run.err)
        self.assertIn(f"dataset.root: the number of channels is unknown, because no image can be read (6 tried); the first is {files[0]}: the file ends too early", run.err)

    def test_changed_classes_are_refused_on_resume(self):
        write_images(self.data / "train", ("cat", "dog"), 4)
        write_images(self.data / "val", ("cat", "dog"), 1)
        config = self.write_config()
        small = ["model.name=resnet20", "dataset.train_transforms=[center_crop: {size: 32}]", "dataset.validation_transforms=[center_crop: {size: 32}]"]
        self.train("--config", config, *small)
        for split in ("train", "val"):
            (self.data / split / "dog").rename(self.data / split / "ant")
        before = (self.run_dir / "metrics.jsonl").read_text()
        run = trainer("--config", config, *small, "training.epochs=2", "--run-dir", self.run_dir)
        self.assertEqual(run.returncode, 2, run.err)
        self.assertIn('this network was trained on other classes: class 0 was "cat" and is "ant" in the data now; restore the data, or start a new run in another --run-dir', run.err)
        self.assertEqual((self.run_dir / "metrics.jsonl").read_text(), before)

    def test_validation_takes_its_part_of_each_class(self):
        for name, count in (("ant", 32), ("bee", 16), ("cat", 8), ("dog", 4)):
            write_images(self.data, (name,), count)
        settings = ["--config", self.write_config(), "model.name=resnet20", "dataset.train_transforms=[center_crop: {size: 32}]",
                    "dataset.validation_transforms=[center_crop: {size: 32}]", "dataset.validation_split=0.25", "training={steps: 2}",
                    "checkpoint.every_steps=1"]
        self.train(*settings)
        confusion = json.loads((self.run_dir / "evaluation.json").read_text())["confusion"]
        self.assertEqual([sum(row) for row in confusion], [8, 4, 2, 1])
        plain = self.folder / "plain"
        self.train(*settings, "dataset.stratify=false", run_dir=plain)
        counts = [sum(row) for row in json.loads((plain / "evaluation.json").read_text())["confusion"]]
        self.assertNotEqual(counts, [8, 4, 2, 1])
        run = trainer(*settings, "training={steps: 4}", "--run-dir", plain)
        self.assertEqual(run.returncode, 2, run.err)
        self.assertIn("dataset.stratify: true, not false", run.err)
        self.train(*settings, "training={steps: 4}", "dataset.stratify=false", run_dir=plain)
        self.assertEqual([sum(row) for row in json.loads((plain / "evaluation.json").read_text())["confusion"]], counts)

    def test_class_names_in_other_letters(self):
        write_images(self.data, ("\u732b", "chien \u00e9l\u00e9gant"), 5)
        run = trainer("data", "show", "--config", self.write_config(), "--output", self.folder / "grid.png")
        self.assertEqual(run.out, f"{self.folder}/grid.png: the first 9 of 9 training images in epoch 0\n  class 0: chien \u00e9l\u00e9gant\n"
                         "  class 1: \u732b\n", run.err)

    def test_data_show(self):
        write_images(self.data, ("cat", "dog"), 5)
        picture = self.folder / "grid.png"
        run = self.ran("data", "show", "--config", self.write_config(), "--output", picture, "--count", "4")
        self.assertEqual(run.out, f"{picture}: the first 4 of 9 training images in epoch 0\n")
        # Two rows and two columns of 224 pixels each, with margins of four pixels and two lines of text.
        self.assertEqual((picture.read_bytes()[:8], struct.unpack(">II", picture.read_bytes()[16:24])), (b"\x89PNG\r\n\x1a\n", (460, 556)))
        first = picture.read_bytes()
        trainer("data", "show", "--config", self.write_config(), "--output", picture, "--count", "4")
        self.assertEqual(picture.read_bytes(), first)
        trainer("data", "show", "--config", self.write_config(), "--output", picture, "--count", "4", "--epoch", "1")
        self.assertNotEqual(picture.read_bytes(), first)


if __name__ == "__main__":
    unittest.main()
