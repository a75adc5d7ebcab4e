"""The commands eval and predict, and the description of the input in exported networks. TRAINER_BINARY is the program; TRAINER_OPENCV is 0
if it was built without OpenCV."""

import ast
import csv
import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import terminal  # noqa: E402
from test_image_folder import plain_png  # noqa: E402
from troubleshooting import plants  # noqa: E402

BINARY = os.environ["TRAINER_BINARY"]
VECTORS = """experiment: vectors
model: {name: demo_linear}
dataset: {name: synthetic, shape: [10], num_classes: 10, num_train: 320, num_validation: 250}
dataloader: {batch_size: 32}
optimizer: {name: sgd, lr: 0.1}
training: {epochs: 2, ema: {decay: 0.9}}
validation: {batch_size: 64}
logging: {tensorboard: false}
runtime: {threads: 1}
amp: {enabled: false}
"""
IMAGES = """experiment: images
model: {name: demo_conv}
dataset:
  name: image_folder
  root: images
  train_transforms: [{resize: {size: [32, 32]}}, {normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}]
  validation_transforms: [{resize: {size: [32, 32]}}, {normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}]
dataloader: {batch_size: 8}
optimizer: {name: sgd, lr: 0.05}
training: {epochs: 2}
logging: {tensorboard: false}
runtime: {threads: 1}
amp: {enabled: false}
"""
CLASSES = ["bird", "cat", "dog"]
VERSION = subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout.split()[1]


class Experiment(unittest.TestCase):
    text = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-eval-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.write_data()
        (cls.folder / "config.yaml").write_text(cls.text)
        run = cls.trainer("--config", "config.yaml", "--run-dir", "run")
        if run.returncode != 0:
            raise AssertionError(run.stderr)
        cls.checkpoint = "run/checkpoints/last.pt"

    @classmethod
    def write_data(cls):
        pass

    @classmethod
    def trainer(cls, *args, **options):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.run([BINARY, *map(str, args)], cwd=cls.folder, text=True, timeout=120, **(pipes | options))

    def printed(self, *args, code=0, **options):
        run = self.trainer(*args, **options)
        self.assertEqual(run.returncode, code, run.stderr)
        return run.stdout

    def refusal(self, *args, code):
        run = self.trainer(*args)
        self.assertEqual((run.returncode, run.stdout), (code, ""), run.stderr)
        return run.stderr


class EvalTest(Experiment):
    text = VECTORS

    def eval(self, *args):
        return json.loads(self.printed("eval", "--checkpoint", self.checkpoint, "--json", *args))

    def test_equals_the_validation_of_the_training(self):
        files = lambda: {path: path.stat().st_mtime_ns for path in self.folder.rglob("*")}  # noqa: E731
        before = files()
        written = json.loads((self.folder / "run" / "evaluation.json").read_text())
        averaged = written.pop("ema_metrics")
        self.assertEqual(list(written), ["split", "epoch", "step", "num_samples", "metrics", "classes", "confusion", "calibration", "mistakes"])
        self.assertEqual((written["epoch"], written["step"], written["num_samples"]), (1, 20, 250))
        self.assertEqual(list(written["metrics"]), ["loss", "top1", "top5", "macro_f1", "balanced_accuracy", "mcc", "calibration_error"])
        self.assertEqual(self.eval(), written)
        found = self.eval("--ema")["metrics"]
        self.assertEqual({name: found[name] for name in averaged}, averaged)
        self.assertNotEqual(found["loss"], written["metrics"]["loss"])
        self.assertEqual(files(), before)

    def test_of_any_batch_size_and_number_of_processes(self):
        written = json.loads((self.folder / "run" / "evaluation.json").read_text())
        small = self.eval("validation.batch_size=7")
        self.assertEqual(small["confusion"], written["confusion"])
        self.assertEqual([mistake["index"] for mistake in small["mistakes"]], [mistake["index"] for mistake in written["mistakes"]])
        ranks = self.printed("launch", "--nproc-per-node", 3, "eval", "--checkpoint", self.checkpoint, "--json", "validation.batch_size=7")
        self.assertEqual(json.loads(ranks), small)

    def test_of_the_training_set(self):
        found = self.eval("--split", "train")
        self.assertEqual((found["split"], found["num_samples"]), ("train", 320))

    def test_tables(self):
        code, text = terminal.run([BINARY, "eval", "--checkpoint", self.checkpoint], 60, cwd=self.folder)
        screen = terminal.show(text, 60)
        shown = "\n".join(screen.lines())
        self.assertEqual((code, screen.wrapped), (0, []), shown)
        self.assertRegex(shown, r"^250 samples of the validation set:\s+demo_linear of\s+run/checkpoints/last.pt, epoch 2, step 20\nvalidation  loss \d")
        self.assertRegex(shown, r"\nclass +samples +recall +precision +f1\n0 +\d+ +\d+\.\d\d% ")
        self.assertRegex(shown, r"\nconfusion matrix [^\n]*\n +0 +1 +2 [ 3-8]* 9\n0 +(\d+ +){9}\d+\n1 ")

    @plants("A file that holds only weights is evaluated", "The weights are those of another network",
            "Averaged parameters are asked for, but there are none")
    def test_weights_of_another_program(self, without_experiment, of_another_network, without_averages):
        for form in ("state_dict", "safetensors"):
            with self.subTest(form):
                self.printed("export", "--checkpoint", self.checkpoint, "--format", form, "--output", form)
                found = json.loads(self.printed("eval", "--checkpoint", form, "--config", "config.yaml", "--json"))
                self.assertEqual(found["confusion"], self.eval()["confusion"])
        for row, args in ((without_experiment, []), (of_another_network, ["--config", "config.yaml", "dataset.num_classes=9", "model.out_features=9"]),
                          (without_averages, ["--config", "config.yaml", "--ema"])):
            row.check(self, self.refusal("eval", "--checkpoint", "state_dict", *args, code=row.code), row.code)

    @plants("The results of a command cannot be printed")
    def test_results_that_cannot_be_written(self, row):
        """As with GNU's tools, this is an error with exit code 1 that names the reason. A command whose result is a file does not need the
        standard output."""
        written = ("export", "--checkpoint", self.checkpoint, "--format", "state_dict", "--output", "weights.pt")
        printing = (("eval", "--checkpoint", self.checkpoint, "--json"), ("config", "show", "--config", "config.yaml"), ("checkpoint", "info", self.checkpoint),
                    ("runs", "."), ("compare", "run", "run"), ("--help",), ("runs", "--help"))
        with open("/dev/full", "w") as full:
            for args in (*printing, written):
                run = self.trainer(*args, stdout=full)
                row.check(self, run.stderr, run.returncode)
                self.assertEqual(run.stderr.count("error:"), 1, (args, run.stderr))
            ranks = self.trainer("launch", "--nproc-per-node", 2, *printing[0], stdout=full)
            row.check(self, ranks.stderr, ranks.returncode)
        for args, code in ((printing[1], 1), (printing[3], 1), (written, 0)):
            run = self.trainer(*args, stdout=None, preexec_fn=lambda: os.close(1))
            self.assertEqual((run.returncode, "the standard output: it is closed" in run.stderr), (code, code == 1), (args, run.stderr))

    def test_a_reader_that_ends(self):
        """The reader closes the pipe, as `| head -1` does. A program that inherits an ignored SIGPIPE gets an error instead of a signal."""
        for args in (("eval", "--checkpoint", self.checkpoint), ("config", "show", "--config", "config.yaml"), ("config", "reference")):
            for is_ignored in (False, True):
                reader, writer = os.pipe()
                os.close(reader)
                run = self.trainer(*args, stdout=writer, restore_signals=not is_ignored)
                os.close(writer)
                self.assertNotIn("error", run.stderr, args)
                self.assertIn(run.returncode, (0,) if is_ignored else (0, -signal.SIGPIPE), args)

    def test_calibrate_tells_that_it_waits_for_another_host(self):
        shutil.copytree(self.folder / "run", self.folder / "waiting", symlinks=True)
        lock = self.folder / "waiting" / ".lock"
        lock.write_text("process 7 on host-b since 2026-01-31 12:00:00 +0000\nhost host-b, boot 1, lock 1, renewal 0000000001\n")
        process = subprocess.Popen([BINARY, "calibrate", "--checkpoint", "waiting"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        line = process.stderr.readline()
        process.terminate()
        process.communicate(timeout=60)
        self.assertEqual(line, f"{lock.resolve()} is locked by process 7 on host-b since 2026-01-31 12:00:00 +0000: waiting 30 s for a renewal of its lease\n")
        self.assertEqual(process.returncode, 75)

    def test_a_limit_of_file_sizes(self):
        run = self.trainer("export", "--checkpoint", self.checkpoint, "--format", "state_dict", "--output", "limited.pt",
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)))
        self.assertEqual((run.returncode, run.stderr), (1, "error: cannot write limited.pt: File too large (ulimit -f limits the size of files)\n"))
        self.assertEqual(list(self.folder.glob("limited*")), [])

    def test_outputs_that_are_no_regular_files(self):
        null = self.folder / "null"
        null.symlink_to("/dev/null")
        page = self.printed("report", "run", "--output", "/dev/stdout")
        self.assertEqual((page[:9].lower(), page.rstrip()[-7:], "open it in a browser" in page), ("<!doctype", "</html>", False))
        for args in (("report", "run"), ("export", "--checkpoint", self.checkpoint, "--format", "safetensors"), ("checkpoint", "average", self.checkpoint)):
            self.printed(*args, "--output", null)
            self.assertEqual(os.readlink(null), "/dev/null")
            pipe = self.folder / "pipe"
            os.mkfifo(pipe)
            with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as cat:
                self.printed(*args, "--output", pipe)
                self.assertGreater(len(cat.stdout.read()), 400, args)
            self.assertTrue(pipe.is_fifo(), args)
            pipe.unlink()
            self.assertIn(f"cannot write {self.folder}: it is a folder", self.refusal(*args, "--output", self.folder, code=2))

    @plants("A result would replace a file of a run")
    def test_outputs_over_the_record_of_a_run(self, row):
        record = lambda: {path: path.read_bytes() for path in (self.folder / "run").rglob("*") if path.is_file()}  # noqa: E731
        before = record()
        for args in (("report", "run", "--output", "run/metrics.jsonl"),
                     ("export", "--checkpoint", self.checkpoint, "--format", "onnx", "--output", "run/train.log"),
                     ("checkpoint", "average", self.checkpoint, "--output", "run/checkpoints/step_00000010.pt")):
            row.check(self, self.refusal(*args, code=2), 2)
        over_itself = ("export", "--checkpoint", self.checkpoint, "--format", "state_dict", "--output", "run/checkpoints/step_00000020.pt")
        self.assertIn("this is the file run/checkpoints/last.pt, which would be overwritten", self.refusal(*over_itself, code=2))
        self.assertEqual(record(), before)
        shutil.copytree(self.folder / "run", self.folder / "without_config")
        (self.folder / "without_config" / "config.yaml").unlink()
        metrics = (self.folder / "without_config" / "metrics.jsonl").read_bytes()
        row.check(self, self.refusal("report", "without_config", "--output", "without_config/metrics.jsonl", code=2), 2)
        self.assertEqual((self.folder / "without_config" / "metrics.jsonl").read_bytes(), metrics)
        # Files that no run has written may be overwritten.
        for _ in range(2):
            self.printed("report", "run", "--output", "run/report.html")
        (self.folder / "run" / "report.html").unlink()

    @plants("A network that was not trained on images has to classify some")
    def test_refused(self, without_images):
        for args, code, message in (
                (["--checkpoint", "none.pt"], 5, "none.pt"),
                (["--checkpoint", self.checkpoint, "validation.batchsize=7"], 2,
                 'command line: validation.batchsize: unknown key; did you mean "batch_size"?'),
                (["--checkpoint", self.checkpoint, "--tta", "flip"], 2, "validation.tta: flip needs images, but synthetic has none"),
                (["--checkpoint", self.checkpoint, "dataset.num_classes=9"], 2, "demo_linear has 10 outputs, but synthetic has 9 classes")):
            with self.subTest(args):
                self.assertIn(message, self.refusal("eval", *args, code=code))
        without_images.check(self, self.refusal("predict", "--checkpoint", self.checkpoint, "a.png", code=2), 2, FILE=self.checkpoint, TEXT="synthetic")


class ImageExperiment(Experiment):
    text = IMAGES

    @classmethod
    def write_data(cls):
        for number, (split, count) in enumerate((("train", 8), ("val", 5))):
            for label, name in enumerate(CLASSES):
                folder = cls.folder / "images" / split / name
                folder.mkdir(parents=True)
                for i in range(count):
                    (folder / f"{i}.png").write_bytes(plain_png(100 * number + 10 * label + i))


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "built without OpenCV")
class PredictTest(ImageExperiment):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.evaluated = json.loads(cls.trainer("eval", "--checkpoint", cls.checkpoint, "--json").stdout)
        # eval and predict need only the checkpoint, not the images of the training.
        (cls.folder / "images").rename(cls.folder / "moved")

    def predict(self, *paths, code=0, **options):
        lines = self.printed("predict", "--checkpoint", self.checkpoint, "--json", *paths, code=code, **options).splitlines()
        return [json.loads(line) for line in lines]

    def test_equals_the_evaluation(self):
        confusion = [[0] * 3 for _ in CLASSES]
        for line in self.predict("moved/val"):
            self.assertEqual([best["name"] for best in line["classes"]], [CLASSES[best["label"]] for best in line["classes"]])
            self.assertAlmostEqual(sum(best["probability"] for best in line["classes"]), 1)
            confusion[CLASSES.index(line["file"].split("/")[2])][line["classes"][0]["label"]] += 1
        self.assertEqual(confusion, self.evaluated["confusion"])
        self.assertEqual([entry["name"] for entry in self.evaluated["classes"]], CLASSES)

    def test_an_evaluation_without_an_image_that_cannot_be_read(self):
        shutil.copytree(self.folder / "moved", self.folder / "one_unreadable")
        (self.folder / "one_unreadable/val/bird/1.png").write_bytes(b"")
        expected = self.evaluated
        samples = [line["classes"][0] for line in self.predict("moved/val")]
        mistakes = [(index, index // 5, best["label"]) for index, best in enumerate(samples) if best["label"] != index // 5 and index != 1]
        self.assertEqual(len(mistakes), sum(map(sum, expected["confusion"])) - sum(expected["confusion"][i][i] for i in range(3)) - (samples[1]["label"] != 0))
        confusion = [row[:] for row in expected["confusion"]]
        confusion[0][samples[1]["label"]] -= 1
        evaluation = ["eval", "--checkpoint", self.checkpoint, "--json", "dataset.root=one_unreadable", "dataset.on_error=skip", "validation.batch_size=4"]
        found = json.loads(self.printed(*evaluation))
        self.assertEqual((found["num_samples"], found["confusion"]), (14, confusion))
        self.assertEqual(sorted((mistake["index"], mistake["label"], mistake["predicted"]) for mistake in found["mistakes"]), mistakes)
        for distribution in ("local", "scatter", "broadcast"):
            ranks = self.printed("launch", "--nproc-per-node", 2, *evaluation, f"dataset.distribution={distribution}")
            self.assertEqual(json.loads(ranks), found, distribution)

    def test_files_and_lists(self):
        names = [f"moved/val/cat/{i}.png" for i in (3, 1)]
        self.assertEqual([line["file"] for line in self.predict(*names, "--top-k", 1)], names)
        piped = subprocess.run([BINARY, "predict", "--checkpoint", self.checkpoint, "--top-k", "2", "-"], cwd=self.folder,
                               input="\n".join(names) + "\n", capture_output=True, text=True, timeout=120)
        self.assertEqual(piped.returncode, 0, piped.stderr)
        self.assertRegex(piped.stdout, r"^moved/val/cat/3\.png  \w+ \d+\.\d\d%  \w+ \d+\.\d\d%\nmoved/val/cat/1\.png  ")

    def test_lists_that_end_with_nul(self):
        names = ["a\nb.png", "c.png"]
        for name in names:
            shutil.copy(self.folder / "moved/val/cat/0.png", self.folder / name)
        run = self.trainer("predict", "--checkpoint", self.checkpoint, "--null", "-", stdin=None, input="\0".join(names) + "\0")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"\Aa\\x0ab\.png  [^\n]*\nc\.png {7}[^\n]*\n\Z")

    def test_long_arguments(self):
        no_image = "no image to classify; name image files, folders, or - for a list on stdin"
        bad_image = "1 path cannot be used, for the reasons above; no image was classified"
        for argument, code, message in (("a.b=" + "x" * 100_000, 2, no_image), ("a." + "b." * 50_000 + "c=1", 3, bad_image),
                                        ("x" * 100_000, 3, bad_image)):
            refusal = self.refusal("predict", "--checkpoint", self.checkpoint, argument, code=code)
            self.assertEqual(refusal.splitlines()[-1], f"error: {message}")

    def test_the_folder_of_a_run_stands_for_its_best_checkpoint(self):
        best = "run/checkpoints/best.pt"
        for folder in ("run", "run/checkpoints"):
            run = self.trainer("predict", "--checkpoint", folder, "moved/val/cat/0.png")
            self.assertEqual((run.returncode, run.stderr), (0, f"network of {best}\n"), run.stderr)
        self.assertIn(f"demo_conv of {best}, ", self.printed("eval", "--checkpoint", "run", "dataset.root=moved"))
        self.assertEqual(self.printed("export", "--checkpoint", "run", "--output", "x.safetensors"),
                         f"x.safetensors: demo_conv of {best}\n")
        self.assertIn(f"{best}: ", self.printed("checkpoint", "info", "run"))
        self.assertIn(f"good: {best}, ", self.printed("checkpoint", "verify", "run"))
        refusal = "moved: this folder contains no checkpoint; give the folder of a run that has saved one, or a file\n"
        self.assertEqual(self.refusal("predict", "--checkpoint", "moved", "a.png", code=5), f"error: {refusal}")
        self.assertEqual(self.printed("checkpoint", "verify", "moved", code=5), f"bad: {refusal}")

    def test_a_stop_request_ends_it(self):
        process = subprocess.Popen([BINARY, "predict", "--checkpoint", "run", "-"], cwd=self.folder, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.assertIn("network of", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (75, "error: stopped on request while waiting for <standard input>\n"))

    @plants("Some images cannot be classified")
    def test_damaged_files_are_named_and_the_others_classified(self, row):
        folder = self.folder / "damaged"
        folder.mkdir()
        shutil.copy(self.folder / "moved/val/cat/0.png", folder / "a.png")
        (folder / "b.png").write_bytes((folder / "a.png").read_bytes()[:60])
        lines = self.predict("damaged", "none.png", code=3)
        self.assertEqual([(line["file"], "classes" in line, "error" in line) for line in lines],
                         [("damaged/a.png", True, False), ("damaged/b.png", False, True), ("none.png", False, True)])
        run = self.trainer("predict", "--checkpoint", self.checkpoint, "damaged", "none.png")
        self.assertEqual(run.returncode, 3)
        self.assertRegex(run.stdout, r"^damaged/a\.png  [^\n]*\n$")
        self.assertRegex(run.stderr, r"warning: damaged/b\.png: [^\n]*\n.*warning: none\.png: cannot be read: No such file or directory\n")
        row.check(self, run.stderr, run.returncode, NUMBER=2)

    def test_comma_separated_values_and_rejected_images(self):
        bad = self.folder / "a, b.png"
        bad.write_bytes(b"no image")
        by_json = self.predict("moved/val", str(bad.name), code=3)
        found = [line["classes"][0]["probability"] for line in by_json[:-1]]
        limit = sorted(set(found))[-1]
        num_rejected = sum(probability < limit for probability in found)
        self.assertTrue(0 < num_rejected < len(found))
        run = self.trainer("predict", "--checkpoint", self.checkpoint, "moved/val", bad.name, "--csv", "--top-k", 2, "--reject-below", limit)
        self.assertEqual(run.returncode, 3)
        rows = list(csv.DictReader(run.stdout.splitlines()))
        self.assertEqual(list(rows[0]), ["file", "error", "rejected", "class_1", "probability_1", "class_2", "probability_2"])
        self.assertEqual([row["rejected"] for row in rows].count("true"), num_rejected)
        for row, line in zip(rows[:-1], by_json):
            best = line["classes"][0]
            self.assertEqual((row["file"], row["error"], row["class_1"], float(row["probability_1"])), (line["file"], "", best["name"], best["probability"]))
        self.assertEqual(list(rows[-1].values())[3:], [""] * 4)
        self.assertEqual((rows[-1]["file"], rows[-1]["error"] != "", rows[-1]["rejected"]), ("a, b.png", True, ""))
        shown = self.printed("predict", "--checkpoint", self.checkpoint, "moved/val", "--reject-below", limit)
        self.assertEqual(shown.count("  rejected:  "), num_rejected)
        self.assertEqual([line["rejected"] for line in self.predict("moved/val", "--reject-below", limit)].count(True), num_rejected)

    def test_embeddings(self):
        (self.folder / "bad.png").write_bytes(b"no image")
        self.assertIn("--embeddings: this network does not separate its features from its last layer",
                      self.refusal("predict", "--checkpoint", self.checkpoint, "moved/val", "--embeddings", "features.npy", code=2))
        self.printed("--config", "config.yaml", "--run-dir", "resnet", "dataset.root=moved", "model.name=resnet20", "training.epochs=1")
        args = ("predict", "--checkpoint", "resnet", "moved/val", "bad.png", "--embeddings")
        self.trainer(*args, "features.npy")
        written = (self.folder / "features.npy").read_bytes()
        size = int.from_bytes(written[8:10], "little")
        self.assertEqual((written[:8], (10 + size) % 64), (b"\x93NUMPY\x01\x00", 0))
        header = ast.literal_eval(written[10:10 + size].decode())
        self.assertEqual((header["descr"], header["fortran_order"], header["shape"]), ("<f4", False, (16, 64)))
        values = struct.unpack(f"<{16 * 64}f", written[10 + size:])
        last = values[-64:]
        self.assertTrue(all(value != value for value in last))
        self.assertFalse(any(value != value for value in values[:-len(last)]))
        self.assertIn("--embeddings moved/val/cat/0.png: this is the file", self.trainer(*args, "moved/val/cat/0.png").stderr)

    def test_heat_maps(self):
        (self.folder / "bad.png").write_bytes(b"no image")
        self.assertEqual(self.refusal("predict", "--checkpoint", self.checkpoint, "moved/val", "--heatmap", "heat", code=2),
                         "error: --heatmap: this network does not provide maps of the image; remove this option\n")
        self.printed("--config", "config.yaml", "--run-dir", "mapped", "dataset.root=moved", "model.name=resnet20", "training.epochs=1")
        args = ("predict", "--checkpoint", "mapped", "moved/val", "bad.png", "--json", "--heatmap", "heat")
        lines = [json.loads(line) for line in self.trainer(*args).stdout.splitlines()]
        self.assertNotIn("heatmap", lines[-1])
        # Images of different folders have the same names.
        self.assertEqual([line["heatmap"] for line in lines[:2]], ["heat/0.png", "heat/1.png"])
        self.assertEqual(len({line["heatmap"] for line in lines[:-1]}), 15)
        self.assertIn("heat/0_3.png", {line["heatmap"] for line in lines[:-1]})
        self.assertEqual(sorted(str(path.relative_to(self.folder)) for path in (self.folder / "heat").iterdir()), sorted(line["heatmap"] for line in lines[:-1]))
        # The pictures of the images and their heat maps, 32 pixels wide, are enlarged.
        self.assertEqual({path.read_bytes()[16:24] for path in (self.folder / "heat").iterdir()}, {struct.pack(">II", 160, 160)})
        self.assertGreater(len({path.read_bytes() for path in (self.folder / "heat").iterdir()}), 10)
        self.assertIn("error: --heatmap heat: the folder is not empty; give a new one, so that no file is overwritten\n", self.refusal(*args, code=2))
        self.assertIn("error: --heatmap bad.png: the folder cannot be made: ", self.refusal(*args[:-1], "bad.png", code=2))
        # Without features, there are no maps either.
        self.printed("--config", "config.yaml", "--run-dir", "flat", "dataset.root=moved", "model={name: layers, layers: [flatten, linear]}", "training.epochs=1")
        self.assertIn("this network has no maps of the image before its last layers, so there are no heat maps for it",
                      self.refusal("predict", "--checkpoint", "flat", "moved/val", "--heatmap", "flat_heat", code=2))

    def eval(self, *args, checkpoint=None):
        return json.loads(self.printed("eval", "--checkpoint", checkpoint or self.checkpoint, "--json", *args))

    def test_other_images_are_all_evaluated_by_the_names_of_their_classes(self):
        whole = self.evaluated["confusion"]
        some = self.folder / "some"
        for name in CLASSES[1:]:
            shutil.copytree(self.folder / "moved/val" / name, some / name)
        (self.folder / "list.csv").write_text("".join(f"moved/val/{name}/{i}.png,{name}\n" for name in reversed(CLASSES[1:]) for i in range(5)))
        self.printed("data", "pack", "--config", "config.yaml", "--output", "packed", "dataset.root=some")
        for args in (["--data", "some"], ["--data", "list.csv"], ["--data", "packed"], ["dataset.root=some"]):
            with self.subTest(args):
                found = self.eval(*args)
                self.assertEqual((found["split"], found["num_samples"], found["confusion"]), ("all", 10, [[0] * 3] + whole[1:]))
                self.assertEqual([row["name"] for row in found["classes"]], CLASSES)
        self.assertEqual(self.eval("--data", "moved", "--split", "validation")["confusion"], whole)
        ranks = self.printed("launch", "--nproc-per-node", 2, "eval", "--checkpoint", self.checkpoint, "--json", "--data", "some")
        self.assertEqual(json.loads(ranks), self.eval("--data", "some"))
        self.assertRegex(self.printed("eval", "--checkpoint", self.checkpoint, "--data", "some"), r"^10 images of some:  demo_conv of run/")
        for args, code, message in (
                (["--data", "moved"], 2, "--data moved has both training and validation images; choose --split"),
                (["--data", "missing"], 2, "--data missing: there is no such file or folder; correct the path"),
                (["--data", "packed/train"], 2, "--data packed/train: this is one part of a packed data set"),
                (["--data", "some", "dataset.root=some"], 2, "dataset.root: --data some replaces this key")):
            with self.subTest(args):
                self.assertIn(message, self.refusal("eval", "--checkpoint", self.checkpoint, *args, code=code))

    def test_other_images_are_not_split_as_those_of_the_training(self):
        self.printed("--config", "config.yaml", "--run-dir", "held_out", "dataset.root=moved/train")
        checkpoint = "held_out/checkpoints/last.pt"
        self.assertEqual(self.eval(checkpoint=checkpoint)["num_samples"], 2)
        self.assertEqual(self.eval("dataset.root=moved/../moved/train/", checkpoint=checkpoint)["num_samples"], 2)
        self.assertEqual(self.eval("dataset.root=moved/val", "dataset.validation_split=0.2", checkpoint=checkpoint)["num_samples"], 3)
        run = self.trainer("eval", "--checkpoint", checkpoint, "dataset.root=moved/val")
        self.assertRegex(run.stdout, r"^15 images of moved/val:  demo_conv of held_out/")
        self.assertIn("warning: moved/val is not the data set of the training run, so all of its images are evaluated", run.stderr)

    def checkpoint_with(self, name, changes):
        """Copies the checkpoint with changes of its experiment that keep its length."""
        with zipfile.ZipFile(self.folder / self.checkpoint) as old, zipfile.ZipFile(self.folder / name, "w") as new:
            for entry in old.namelist():
                content = old.read(entry)
                if entry.endswith("/data.pkl"):
                    for before, after in changes.items():
                        self.assertIn(before, content)
                        content = content.replace(before, after)
                new.writestr(entry, content)
        return name

    def test_a_network_trained_on_gpus_is_used_without_any(self):
        trained = self.checkpoint_with("trained.pt", {b'cuda_graph: "off"': b'cuda_graph: "on" ', b"backend: auto": b"backend: nccl"})
        self.assertEqual(self.eval("dataset.root=moved", checkpoint=trained), self.eval("dataset.root=moved"))
        self.assertEqual(self.printed("predict", "--checkpoint", trained, "moved/val", "--json"), self.printed("predict", "--checkpoint", self.checkpoint, "moved/val", "--json"))
        self.printed("export", "--checkpoint", trained, "--output", "trained.onnx")

    def test_a_checkpoint_of_another_version_of_the_program(self):
        """Keys that predictions do not need are ignored, and others are refused."""
        later = self.checkpoint_with("later.pt", {b"\n  every_steps:": b"\n  every_stepz:"})
        ignored = 'every_stepz: unknown key; did you mean "every_steps"? (ignored, because predictions do not need it)'
        for args in (["eval", "--json", "dataset.root=moved"], ["predict", "moved/val/cat", "--json"], ["export", "--output", "later.onnx"]):
            run = self.trainer(*args, "--checkpoint", later)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(ignored, run.stderr)
        self.assertEqual(self.eval("dataset.root=moved", checkpoint=later), self.eval("dataset.root=moved"))
        self.assertEqual(self.printed("predict", "--checkpoint", later, "moved/val", "--json"), self.printed("predict", "--checkpoint", self.checkpoint, "moved/val", "--json"))
        other = self.checkpoint_with("other.pt", {b"name: demo_conv": b"nane: demo_conv"})
        self.assertIn("other.pt: config:6:3: model.name: missing", self.refusal("eval", "--checkpoint", other, "dataset.root=moved", code=2))

    def test_grid(self):
        self.printed("predict", "--checkpoint", self.checkpoint, "moved/val", "--save-grid", "grid.png")
        self.assertEqual((self.folder / "grid.png").read_bytes()[:4], b"\x89PNG")
        image = self.folder / "moved/val/cat/0.png"
        before = image.read_bytes()
        for inputs, output in ((["moved/val"], image), ([image], image.relative_to(self.folder)), ([image], self.checkpoint)):
            self.assertRegex(self.refusal("predict", "--checkpoint", self.checkpoint, *inputs, "--save-grid", output, code=2),
                             r"error: --save-grid \S+: this is .*, which would be overwritten; give another name\n")
        self.assertIn("this is the file moved/val/cat/0.png, which would be overwritten",
                      self.refusal("data", "show", "--config", "config.yaml", "dataset.root=moved", "--output", image, code=2))
        (self.folder / "link.png").symlink_to(image)
        self.assertIn("this is the file moved/val/cat/0.png, which would be overwritten",
                      self.refusal("data", "show", "--config", "config.yaml", "dataset.root=moved", "--output", "link.png", code=2))
        self.assertEqual(image.read_bytes(), before)
        # The name of the output file is checked before an image is read.
        shutil.copytree(self.folder / "moved", self.folder / "unreadable")
        for path in (self.folder / "unreadable").rglob("*.png"):
            path.write_bytes(b"")
        for args in (("predict", "--checkpoint", self.checkpoint, "moved/val", "--save-grid", "grid.txt"),
                     ("data", "show", "--config", "config.yaml", "dataset.root=unreadable", "--output", "grid.txt")):
            run = self.trainer(*args)
            self.assertEqual((run.returncode, run.stdout), (2, ""), run.stderr)
            self.assertRegex(run.stderr, r"^error: cannot write grid\.txt: [^\n]+; use a name that ends in \.png or \.jpg\n$")
        (self.folder / "null.png").symlink_to("/dev/null")
        self.printed("predict", "--checkpoint", self.checkpoint, image, "--save-grid", "null.png")
        self.assertTrue((self.folder / "null.png").is_symlink())
        self.assertIn("error: cannot write absent/a.png: No such file or directory\n",
                      self.refusal("data", "show", "--config", "config.yaml", "dataset.root=moved", "--output", "absent/a.png", code=1))

    def test_exports_describe_their_input(self):
        digest = hashlib.sha256((self.folder / self.checkpoint).read_bytes()).hexdigest()
        expected = {"trainer": VERSION, "checkpoint_sha256": digest, "model": "demo_conv", "class_names": CLASSES, "input_shape": [3, 32, 32],
                    "image_files": {"mode": "rgb", "is_turned_upright": True, "divided_by": 255},
                    "transforms": [{"resize": {"size": [32, 32], "longest": None, "interpolation": "bilinear"}}, {"normalize": {"mean": [0.5] * 3, "std": [0.25] * 3}}]}
        for form in ("safetensors", "torchscript"):
            self.printed("export", "--checkpoint", self.checkpoint, "--format", form, "--output", form)
        written = (self.folder / "safetensors").read_bytes()
        header = json.loads(written[8:8 + int.from_bytes(written[:8], "little")])
        self.assertEqual(json.loads(header["__metadata__"]["trainer"]), expected)
        with zipfile.ZipFile(self.folder / "torchscript") as file:
            name, = (name for name in file.namelist() if name.endswith("/extra/trainer.json"))
            self.assertEqual(json.loads(file.read(name)), {**expected, "input": "images", "outputs": ["probabilities"]})

    @plants("The classes have other names than in the training")
    def test_refused(self, row):
        for args, code, message in (
                (["runtime.device=cpu"], 2, "no image to classify; name image files, folders, or - for a list on stdin"),
                (["a.png", "runtime.devise=cpu"], 2, 'command line: runtime.devise: unknown key; did you mean "device"?'),
                (["a.png", "--top-k", "0"], 2, "--top-k"),
                (["images"], 3, "error: 1 path cannot be used, for the reasons above; no image was classified"),
                (["a.png", "--config", "none.yaml"], 2, "none.yaml")):
            with self.subTest(args):
                self.assertIn(message, self.refusal("predict", "--checkpoint", self.checkpoint, *args, code=code))
        self.assertIn("error: dataset.root: ", self.refusal("eval", "--checkpoint", self.checkpoint, code=3))
        shutil.copytree(self.folder / "moved", self.folder / "renamed")
        for split in ("train", "val"):
            (self.folder / "renamed" / split / "cat").rename(self.folder / "renamed" / split / "lion")
        refusal = self.refusal("eval", "--checkpoint", self.checkpoint, "dataset.root=renamed", code=2)
        row.check(self, refusal, 2, FILE=self.checkpoint, TEXT="lion")


if __name__ == "__main__":
    unittest.main()
