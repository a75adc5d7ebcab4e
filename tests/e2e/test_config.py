"""Experiment files in everyday use: base files, the standard input, the origins of values, and `trainer init`. TRAINER_BINARY is the
program; TRAINER_OPENCV is 0 if it was built without OpenCV."""

import contextlib
import os
import pathlib
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS / "testing")]
from program import BINARY, LINEAR, ROOT, FolderCase  # noqa: E402
from test_image_folder import write_images  # noqa: E402

ONE_STEP = ["training.epochs=null", "training.steps=1", "lr_scheduler.warmup_epochs=0", "runtime={device: cpu, threads: 1}", "amp.enabled=false"]


def start(*args, text=None):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([BINARY, *map(str, args)], cwd=ROOT, **pipes)
    # A command that does not read its standard input may have ended already.
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(text or "")
    process.stdin = None
    return process


def finish(process):
    process.out, process.err = process.communicate(timeout=120)
    return process


def trainer(*args, text=None):
    return finish(start(*args, text=text))


def deviation(values, counts):
    """Mean and deviation of pixels, as `trainer init` writes them."""
    total = sum(counts)
    mean = sum(value * count for value, count in zip(values, counts)) / total
    variance = sum(value * value * count for value, count in zip(values, counts)) / total - mean * mean
    return f"{mean / 255:.4f}", f"{variance ** 0.5 / 255:.4f}"


class ConfigTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "x.yaml"

    def test_a_file_with_a_base_is_the_same_run_as_one_without(self):
        self.file.write_text(f"base: {LINEAR}\nexperiment: mine\ntraining: {{epochs: 1}}\n")
        self.ran("--config", self.file, "--run-dir", self.run_dir)
        resolved = (self.run_dir / "config.yaml").read_text()
        self.assertNotIn("base", resolved)
        again = self.ran("--config", self.run_dir / "config.yaml", "--run-dir", self.run_dir)
        self.assertNotIn("changed since", again.err)
        self.file.write_text(f"base: {LINEAR}\nexperiment: mine\nloging: {{}}\n")
        run = trainer("config", "show", "--config", self.file)
        self.assertEqual((run.returncode, run.err), (2, f'error: {self.file}:3:1: loging: unknown key; did you mean "logging"?\n'))

    def test_origins(self):
        self.file.write_text(f"base: {LINEAR}\nexperiment: mine\n")
        run = self.ran("config", "show", "--origin", "--config", self.file, "seed=7")
        self.assertRegex(run.out, rf"(?m)^experiment: mine  # {self.file}:2$")
        self.assertRegex(run.out, r"(?m)^seed: 7  # command line$")
        self.assertRegex(run.out, rf"(?m)^model.name: demo_linear  # {LINEAR}:\d+$")
        self.assertRegex(run.out, r"(?m)^dataset.validation_split: 0  # from the data set$")

    def test_the_standard_input(self):
        text = LINEAR.read_text()
        run = trainer("--config", "-", "training.epochs=1", "--run-dir", self.run_dir, text=text)
        self.assertEqual(run.returncode, 0, run.err)
        run = trainer("config", "show", "--config", "-", text=f"base: {LINEAR.relative_to(ROOT)}\nsead: 1\n")
        self.assertEqual((run.returncode, run.err), (2, 'error: <standard input>:2:1: sead: unknown key; did you mean "seed"?\n'))
        run = trainer("config", "show", "--config", "-")
        self.assertEqual(run.err, "error: <standard input>: the file is empty; `trainer init` writes one for your images, and `trainer config reference` shows all keys\n")
        for args in (["--config", "-"], ["--config=-"], ["--", "--config", "-"]):
            run = trainer("launch", *args, text=text)
            self.assertEqual((run.returncode, run.err), (2, "error: --config -: the processes of a launcher cannot share the standard input; "
                                                            "write the experiment to a file\n"))
        meeting = ["--world-size", 2, "--init-method", f"file://{self.folder}/meeting"]
        ranks = [finish(rank) for rank in [start("--config", "-", "--rank", i, *meeting, text=text) for i in (0, 1)]]
        self.assertEqual([rank.returncode for rank in ranks], [2, 2])
        self.assertIn("--config -: several processes cannot share standard input; write the experiment to a file", ranks[0].err + ranks[1].err)

    def test_the_reference_of_one_key(self):
        run = trainer("config", "reference", "optimizer.sgd.momentum")
        self.assertRegex(run.out, r"^optimizer, name: sgd: .*\n  momentum .*\n .*\n\n$")
        run = trainer("config", "reference", "optimizer.momntum")
        self.assertEqual((run.returncode, run.out), (2, ""))

    def init(self, *args, code=0):
        run = trainer("init", "--output", self.file, *args)
        self.assertEqual(run.returncode, code, run.err)
        return run

    def train_one_step(self, *args):
        self.ran("--config", self.file, *ONE_STEP, "--run-dir", self.run_dir, *args)

    def test_init_without_data(self):
        run = self.init()
        self.assertRegex(run.out, rf"(?m)^  trainer --config {self.file} ")
        self.train_one_step("dataset.root=datasets/cifar10_sample", "dataset.download=false")
        before = self.file.read_text()
        run = self.init(code=2)
        self.assertEqual(run.err, f"error: {self.file} exists already and is kept; name another file with --output\n")
        self.assertEqual(self.file.read_text(), before)

    def test_init_for_cifar(self):
        self.init("--data", "datasets/cifar10_sample")
        text = self.file.read_text()
        self.assertIn("\n# 2000 training images of 10 classes:\n#   airplane 200, ", text)
        self.assertIn("\n# 500 images for validation\n# Size: 32 x 32 (height x width, of all training images)\n", text)
        planes = [b"", b"", b""]
        for i in range(1, 6):
            content = (ROOT / f"datasets/cifar10_sample/cifar-10-batches-bin/data_batch_{i}.bin").read_bytes()
            for record in range(0, len(content), 3073):
                planes = [plane + content[record + 1 + 1024 * c:record + 1025 + 1024 * c] for c, plane in enumerate(planes)]
        mean, std = zip(*(deviation(range(256), [plane.count(value) for value in range(256)]) for plane in planes))
        self.assertEqual(text.count(f"    - normalize: {{mean: [{', '.join(mean)}], std: [{', '.join(std)}]}}\n"), 2, text)
        self.ran("config", "show", "--config", self.file)

    @unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
    def test_init_for_folders_of_images(self):
        data = self.folder / "my photos"
        self.file = self.folder / "my photos.yaml"
        # As in an archive that macOS or Windows made.
        for part in ("", "train"):
            write_images(data / part / "__MACOSX" / "train", ("cat",), 1)
        write_images(data / "train", ("cat", "dog"), 8)
        write_images(data / "val", ("cat", "dog"), 2, first=20)
        (data / "train/cat/Thumbs.db").write_bytes(b"x")
        (data / "train/dog/00003.png").write_bytes(b"")
        run = self.init("--data", data)
        self.assertNotIn("Thumbs.db", run.err)
        self.assertIn(f"warning: 1 of 16 examined training images cannot be read; training will skip all that it cannot read (dataset.on_error: skip); the first is sample 11, {data}/train/dog/00003.png: ", run.err)
        self.assertRegex(run.out, rf"(?m)^  trainer data show --config '{self.file}' --output images.png ")
        for command in ("check", "audit"):
            self.assertIn(f"  trainer data {command} --config '{self.file}' ", run.out)
        text = self.file.read_text()
        self.assertRegex(text, r"(?m)^experiment: my_photos +# the run directory is runs/my_photos$")
        self.assertIn("\n# 16 training images of 2 classes:\n#   cat 8, dog 8\n# 4 images for validation\n# Sizes: ", text)
        self.assertIn("\n  on_error: skip ", text)
        # Each image has one colour, so its size does not change the mean and deviation.
        numbers = [number for number in range(16) if number != 11]
        mean, std = zip(*(deviation([factor * number % 256 for number in numbers], [1] * 15) for factor in (37, 101, 53)))
        self.assertEqual(text.count(f"    - normalize: {{mean: [{', '.join(mean)}], std: [{', '.join(std)}]}}\n"), 2, text)
        self.train_one_step()

    @unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
    def test_init_with_a_damaged_image_for_validation(self):
        data = self.folder / "photos"
        write_images(data / "train", ("cat", "dog"), 8)
        write_images(data / "val", ("cat", "dog"), 2, first=20)
        (data / "val/dog/00001.png").write_bytes(b"")
        run = self.init("--data", data)
        self.assertIn(f"warning: 1 of 4 examined validation images cannot be read; training will skip all that it cannot read (dataset.on_error: skip); the first is sample 3, {data}/val/dog/00001.png: ", run.err)
        self.assertRegex(self.file.read_text(), "\n  on_error: skip +# 1 of 20 examined images cannot be read; `trainer data check` lists all\n")
        self.train_one_step()

    @unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
    def test_init_for_a_small_uneven_set(self):
        data = self.folder / "photos"
        for name, count in (("cat", 480), ("dog", 40)):
            write_images(data, (name,), count)
        run = self.init("--data", data)
        self.assertEqual([line for line in run.err.splitlines() if not line.startswith("warning: ")], [])
        text = self.file.read_text()
        self.assertRegex(text, r"(?m)^dataloader: \{global_batch_size: \d+, num_workers: 4, drop_last: false\}$")
        self.assertRegex(text, r"(?m)^  validation_split: 0.2 +# of each class")
        self.assertRegex(text, r"(?m)^# dataloader: \{global_batch_size: \d+, .*, sampler: \{name: class_balanced\}\}$")
        self.assertIn("\n# loss: {class_weights: auto}\n", text)
        self.assertIn("\n# checkpoint: {monitor: validation/balanced_accuracy}\n", text)
        self.train_one_step("loss={class_weights: auto}", "checkpoint.monitor=validation/balanced_accuracy")

    def test_init_tries_first_whether_it_can_write(self):
        absent = self.folder / "absent" / "new.yaml"
        # The output file is checked before the folder of images.
        run = trainer("init", "--data", self.folder / "no images", "--output", absent)
        self.assertEqual((run.returncode, run.err), (1, f"error: cannot write {absent}: No such file or directory\n"))
        self.init("--data", self.folder, code=3)
        self.assertFalse(self.file.exists())

    def test_init_where_no_data_set_is(self):
        run = self.init("--data", self.folder / "absent", code=2)
        self.assertEqual(run.err, f"error: --data {self.folder}/absent: there is no such file or folder; correct the path\n")
        run = self.init("--data", self.folder, code=3)
        self.assertTrue(run.err.startswith(f"error: --data {self.folder}: no data set is recognised there: {self.folder} has no class folders; set dataset.root to a folder that contains one folder of images per class"), run.err)
        self.assertIn("train.csv and the files of lmdb, ", run.err)
        self.assertFalse(self.file.exists())


if __name__ == "__main__":
    unittest.main()
