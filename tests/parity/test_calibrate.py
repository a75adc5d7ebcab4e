"""`trainer calibrate`: the temperature equals that of an LBFGS fit in Python, the thresholds have the promised rates, and predict, exported
files and libtrainer_predict use them. TRAINER_BINARY is the program."""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import numpy
import onnx
import onnxruntime
import torch
from PIL import Image
from torchmetrics.functional.classification import binary_average_precision, binary_precision_recall_curve, multiclass_calibration_error

BINARY = os.environ["TRAINER_BINARY"]
LIBRARY = pathlib.Path(BINARY).with_name("libtrainer_predict.so")
CLASSES = ["dent", "good", "scratch"]
CONFIG = """experiment: parts
model: {name: resnet20}
dataset:
  name: image_folder
  root: ROOT
  train_transforms: [resize: {size: [16, 16]}]
  validation_transforms: [resize: {size: [16, 16]}]
dataloader: {batch_size: 10}
optimizer: {name: sgd, lr: 0.1}
training: {epochs: 6, ema: {decay: 0.5}}
validation: {batch_size: 7}
runtime: {threads: 1, device: cpu}
amp: {enabled: false}
logging: {tensorboard: false}
"""


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class CalibrateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-calibrate-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        rng = numpy.random.default_rng(1)
        for split, count in (("train", 40), ("val", 60)):
            for label, name in enumerate(CLASSES):
                (cls.folder / "data" / split / name).mkdir(parents=True)
                for i in range(count):
                    # Classes that overlap, so that some images cannot be distinguished.
                    pixels = rng.normal(100 + 25 * label, 40, (16, 16, 1)) + rng.normal(0, 25)
                    Image.fromarray(pixels.clip(0, 255).repeat(3, 2).astype(numpy.uint8)).save(cls.folder / "data" / split / name / f"{i}.png")
        (cls.folder / "config.yaml").write_text(CONFIG.replace("ROOT", str(cls.folder / "data")))
        cls.trainer("--config", "config.yaml", "--run-dir", "run")
        cls.checkpoint = cls.folder / "run" / "checkpoints" / "last.pt"
        cls.original = cls.checkpoint.read_bytes()
        cls.files = [cls.folder / "data" / "val" / name / f"{i}.png" for name in CLASSES for i in range(60)]
        cls.labels = torch.arange(3).repeat_interleave(60)

    def setUp(self):
        self.checkpoint.write_bytes(self.original)

    @classmethod
    def trainer(cls, *args, code=0):
        run = subprocess.run([BINARY, *map(str, args)], cwd=cls.folder, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if run.returncode != code:
            raise AssertionError(run.stderr)
        return run.stdout if code == 0 else run.stderr

    def calibrate(self, *args):
        return json.loads(self.trainer("calibrate", "--checkpoint", self.checkpoint, "--json", *args))

    def predicted(self, *args):
        return [json.loads(line) for line in self.trainer("predict", "--checkpoint", self.checkpoint, "--json", *args, *self.files).splitlines()]

    def probabilities(self, *args):
        return torch.tensor([[entry["probability"] for entry in sorted(row["classes"], key=lambda entry: entry["label"])] for row in self.predicted(*args)],
                            dtype=torch.float64)

    def test_the_temperature_is_that_of_lbfgs(self):
        for flags in ([], ["--ema"]):
            with self.subTest(flags):
                before = self.probabilities(*flags)
                result = self.calibrate(*flags)
                logits, factor = before.log(), torch.ones(1, dtype=torch.float64, requires_grad=True)
                optimizer = torch.optim.LBFGS([factor], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-15, line_search_fn="strong_wolfe")

                def closure():
                    optimizer.zero_grad()
                    loss = torch.nn.functional.cross_entropy(logits / factor, self.labels)
                    loss.backward()
                    return loss

                optimizer.step(closure)
                # The probabilities are floats. Their rounding changes a temperature in proportion to it.
                self.assertAlmostEqual(result["temperature"], factor.item(), delta=1e-6 * max(1, factor.item()))
                self.assertGreater(abs(result["temperature"] - 1), 0.01)
                # predict uses the stored temperature.
                after = self.probabilities(*flags)
                torch.testing.assert_close(after, (logits / factor.detach()).softmax(1), atol=1e-6, rtol=1e-6)
                for key, values in (("before", before), ("after", after)):
                    self.assertAlmostEqual(result["loss"][key], -values.gather(1, self.labels[:, None]).log().mean().item(), places=6)
                    error = result["calibration_error"][key]
                    self.assertAlmostEqual(error["value"], multiclass_calibration_error(values, self.labels, 3).item(), places=6)
                    self.assertTrue(error["low"] < error["high"])
                self.assertLess(result["loss"]["after"], result["loss"]["before"])

    def test_a_class_that_must_not_be_missed(self):
        result = self.calibrate("--class", "dent", "--miss-at-most", "5%", "--reject-below", 0.5)
        threshold = result["threshold"]
        self.assertEqual((threshold["class"], threshold["label"]), ("dent", 0))
        probabilities = self.probabilities()
        is_dent = self.labels == 0
        decided_dent = probabilities[:, 0] >= threshold["probability"]
        misses = (~decided_dent & is_dent).sum().item()
        # Three misses of 60 are the allowed 5 %, which gives the fewest false alarms.
        self.assertEqual(misses, 3)
        self.assertAlmostEqual(threshold["misses"]["value"], 3 / 60, places=9)
        self.assertAlmostEqual(threshold["false_alarms"]["value"], (decided_dent & ~is_dent).sum().item() / 120, places=9)
        others = probabilities.clone()
        others[:, 0] = -1
        decided = torch.where(decided_dent, 0, others.argmax(1))
        rejected = ~decided_dent & (others.max(1).values < 0.5)
        rows = self.predicted()
        self.assertEqual([row["classes"][0]["label"] for row in rows], decided.tolist())
        self.assertEqual([row["rejected"] for row in rows], rejected.tolist())
        self.assertGreater(rejected.sum().item(), 0)
        self.assertAlmostEqual(result["rejected"]["value"], rejected.double().mean().item(), places=9)
        self.assertAlmostEqual(result["accuracy"]["value"], (decided == self.labels)[~rejected].double().mean().item(), places=9)
        self.check_library(decided.where(~rejected, -1).tolist())

    def check_library(self, decisions):
        library = ctypes.CDLL(str(LIBRARY))
        library.trainer_predict_open.restype = ctypes.c_void_p
        library.trainer_predict_decide.restype = ctypes.c_int64
        predictor = ctypes.c_void_p(library.trainer_predict_open(str(self.checkpoint).encode(), None, 0, None, ctypes.c_size_t(0)))
        probabilities = (ctypes.c_double * 3)()
        found = []
        for file in self.files:
            self.assertEqual(library.trainer_predict_file(predictor, str(file).encode(), probabilities, None, None, ctypes.c_size_t(0)), 0)
            found.append(library.trainer_predict_decide(predictor, probabilities))
        library.trainer_predict_close(predictor)
        self.assertEqual(found, decisions)

    def test_eval_shows_the_operating_point(self):
        """On one process and on two."""
        self.assertNotIn("operating_point", json.loads(self.trainer("eval", "--checkpoint", self.checkpoint, "--json")))
        calibrated = self.calibrate("--class", "dent", "--miss-at-most", "5%", "--reject-below", 0.5)
        for command in (["eval"], ["launch", "--nproc-per-node", 2, "eval"]):
            with self.subTest(command[0]):
                found = json.loads(self.trainer(*command, "--checkpoint", self.checkpoint, "--json", "validation.batch_size=7"))
                point = found["operating_point"]
                self.assertAlmostEqual(found["metrics"]["calibration_error"], calibrated["calibration_error"]["before"]["value"], places=6)
                self.assertAlmostEqual(point.pop("calibration_error"), calibrated["calibration_error"]["after"]["value"], places=6)
                self.assertEqual(point, {key: calibrated[key] for key in point})
                self.assertEqual(set(point), {"temperature", "reject_below", "accuracy", "rejected", "threshold"})
        text = self.trainer("eval", "--checkpoint", self.checkpoint)
        self.assertRegex(text, r"\nas calibrated, with temperature \d+\.\d{4}; 95% intervals in brackets\ncalibration error  \d+\.\d\d%\n"
                               r"class              dent: assigned if its probability is at least [\d.]+; 5\.00% \([\d.]+% to [\d.]+%\) of its images are missed, .*\n"
                               r"rejected           [\d.]+% .* have a probability below 0\.5\naccuracy           .* of the others\n$")
        self.assertNotIn("as calibrated", self.trainer("eval", "--checkpoint", self.checkpoint, "--ema"))
        averaged = self.calibrate("--ema")
        found = json.loads(self.trainer("eval", "--checkpoint", self.checkpoint, "--ema", "--json"))["operating_point"]
        self.assertEqual(found["temperature"], averaged["temperature"])
        self.assertNotEqual(found["temperature"], calibrated["temperature"])

    def test_eval_without_images_of_the_class(self):
        """Values that cannot be measured are not shown as perfect."""
        self.calibrate("--class", "dent", "--miss-at-most", "5%", "--reject-below", 1)
        others = self.folder / "others"
        (others / "good").mkdir(parents=True)
        for i in range(3):
            shutil.copy(self.folder / "data" / "val" / "good" / f"{i}.png", others / "good")
        found = json.loads(self.trainer("eval", "--checkpoint", self.checkpoint, "--data", others, "--json"))["operating_point"]
        self.assertIsNone(found["threshold"]["misses"])
        text = self.trainer("eval", "--checkpoint", self.checkpoint, "--data", others)
        self.assertIn("; no image belongs to it, ", text)
        if found["accuracy"] is None:
            self.assertIn("accuracy           unknown, because all images are rejected\n", text)

    def test_what_the_report_gets(self):
        """The report gets the reliability before and after the calibration and the curve of each class; they equal those of
        torchmetrics."""
        result = self.calibrate()
        stored = json.loads((self.folder / "run" / "calibration.json").read_text())
        self.assertEqual((stored.pop("step"), stored.pop("averaged"), stored.pop("images")), (72, False, "the validation set"))
        self.assertEqual(stored, result)
        probabilities = self.probabilities()
        for when in ("before", "after"):
            bins = result["calibration"][when]
            self.assertEqual(sum(one["count"] for one in bins), 180)
            error = sum(one["count"] * abs(one["accuracy"] - one["confidence"]) for one in bins) / 180
            self.assertAlmostEqual(error, result["calibration_error"][when]["value"], places=9)
        for label, one in enumerate(result["classes"]):
            self.assertEqual((one["name"], one["num_samples"]), (CLASSES[label], 60))
            scores, is_of_class = probabilities[:, label], (self.labels == label).long()
            self.assertAlmostEqual(one["average_precision"], binary_average_precision(scores, is_of_class).item(), places=5)
            precision, recall, thresholds = binary_precision_recall_curve(scores, is_of_class)
            self.assertLessEqual(len(one["precision_recall"]), 50)
            self.assertEqual(one["precision_recall"][-1]["recall"], 1)
            for point in one["precision_recall"]:
                at = (thresholds - point["threshold"]).abs().argmin()
                self.assertAlmostEqual(point["precision"], precision[at].item(), places=6)
                self.assertAlmostEqual(point["recall"], recall[at].item(), places=6)

    def test_exported_files(self):
        temperature = self.calibrate("--class", "scratch", "--miss-at-most", "0.1")["temperature"]
        expected = self.probabilities()
        self.trainer("export", "--checkpoint", self.checkpoint, "--output", "network.onnx")
        self.trainer("export", "--checkpoint", self.checkpoint, "--format", "torchscript", "--output", "network.pt")
        file = str(self.folder / "network.onnx")
        description = json.loads({entry.key: entry.value for entry in onnx.load(file).metadata_props}["trainer"])
        self.assertEqual(description["operating_point"]["temperature"], temperature)
        self.assertEqual(description["operating_point"]["threshold"]["label"], 2)
        images = numpy.stack([numpy.asarray(Image.open(path)) for path in self.files])
        found, = onnxruntime.InferenceSession(file).run(["probabilities"], {"image": images})
        torch.testing.assert_close(torch.from_numpy(found).double(), expected, atol=1e-5, rtol=1e-4)
        script = torch.jit.load(self.folder / "network.pt")
        torch.testing.assert_close(script(torch.from_numpy(images)).detach().double(), expected, atol=1e-5, rtol=1e-4)

    def test_a_calibrated_checkpoint_is_as_good_as_before(self):
        """A second calibration gives the same result as the first. Training continues from a calibrated checkpoint, and its network is
        unchanged."""
        once = self.calibrate()
        self.assertEqual(self.calibrate(), once)
        content = torch.load(self.checkpoint, weights_only=True)
        before = self.folder / "before.pt"
        before.write_bytes(self.original)
        step = self.checkpoint.resolve()
        self.assertNotEqual(step, self.checkpoint)
        self.assertEqual(set(content) - set(torch.load(before, weights_only=True)), {"operating_point"})
        self.assertIn("temperature        ", self.trainer("calibrate", "--checkpoint", self.checkpoint))
        self.assertTrue(self.checkpoint.is_symlink())
        self.trainer("--config", "config.yaml", "--run-dir", "run", "--resume", self.checkpoint, "training.epochs=7")
        self.assertNotIn("operating_point", torch.load(self.checkpoint, weights_only=True))

    def test_refusals(self):
        for args, text in ((["--class", "dent"], "--class requires --miss-at-most"),
                           (["--class", "crack", "--miss-at-most", "0"], "--class crack: the network has no such class"),
                           (["--class", "dent", "--miss-at-most", "2"], "--miss-at-most 2: give a fraction below 1, such as 0.001 or 0.1%"),
                           (["--reject-below", "2"], "--reject-below")):
            with self.subTest(args):
                self.assertIn(text, self.trainer("calibrate", "--checkpoint", self.checkpoint, *args, code=2))
        self.assertEqual(self.checkpoint.read_bytes(), self.original)


if __name__ == "__main__":
    unittest.main()
