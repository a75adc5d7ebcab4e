"""Training with any number of classes for each image, and with numbers: metrics, losses, thresholds and the mean and deviation of the
targets equal those of torchmetrics, torch and numpy on the same outputs. predict, exported files and libtrainer_predict give the same
results. TRAINER_BINARY is the program."""

import csv
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import onnxruntime
import torch
from PIL import Image
from torchmetrics import MeanAbsoluteError, MeanSquaredError, R2Score
from torchmetrics.functional.classification import multilabel_average_precision, multilabel_exact_match, multilabel_f1_score, multilabel_precision

BINARY = os.environ["TRAINER_BINARY"]
LIBRARY = pathlib.Path(BINARY).with_name("libtrainer_predict.so")
CLASSES = ["dent", "rust", "scratch"]
NUMBERS = ["length", "weight"]
SPLITS = {"train": 96, "val": 61}
CONFIG = """experiment: parts
model: {name: resnet20}
dataset:
  name: csv
  train: train_TARGETS.csv
  validation: val_TARGETS.csv
  targets: TARGETS
  separator: "+"
  train_transforms: [resize: {size: [16, 16]}]
  validation_transforms: [resize: {size: [16, 16]}]
dataloader: {global_batch_size: 24}
loss: LOSS
optimizer: {name: sgd, lr: 0.02, momentum: 0.9}
training: {epochs: 3}
runtime: {threads: 1, device: cpu, dtype: float64}
amp: {enabled: false}
logging: {tensorboard: false}
"""


def read_json(file):
    return json.loads(file.read_text())


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class TargetsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-targets-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        rng = numpy.random.default_rng(1)
        cls.classes, cls.numbers = {}, {}
        for split, count in SPLITS.items():
            has = rng.random((count, 3)) < [0.6, 0.3, 0.15]
            shade = rng.integers(20, 120, count)
            for i in range(count):
                pixels = numpy.full((20, 24, 3), shade[i])
                for channel in range(3):
                    pixels[4 * channel : 4 * channel + 5, :, channel] += 120 * has[i, channel]
                noisy = pixels + rng.normal(0, 25, pixels.shape)
                Image.fromarray(noisy.clip(0, 255).astype(numpy.uint8)).save(cls.folder / f"{split}_{i}.png")
            cls.classes[split] = has
            # The numbers are not smaller, because R2Score treats sums of squares below 1e-4 as 0.
            cls.numbers[split] = numpy.stack([shade * 10.0 + 5000, 0.3 * has.sum(1) + 0.25], 1)
            with open(cls.folder / f"{split}_classes.csv", "w", newline="") as file:
                csv.writer(file).writerows([["path", *CLASSES]] + [[f"{split}_{i}.png", *map(int, has[i])] for i in range(count)])
            with open(cls.folder / f"{split}_numbers.csv", "w", newline="") as file:
                csv.writer(file).writerows([["path", *NUMBERS]] + [[f"{split}_{i}.png", *cls.numbers[split][i]] for i in range(count)])
        cls.train("classes", "{name: bce, pos_weight: auto}")
        cls.train("numbers", "{name: huber, delta: 0.7}")

    @classmethod
    def train(cls, name, loss):
        (cls.folder / f"{name}.yaml").write_text(CONFIG.replace("TARGETS", name).replace("LOSS", loss))
        cls.trainer("launch", "--nproc-per-node", "2", "--config", f"{name}.yaml", "--run-dir", f"run_{name}")

    @classmethod
    def trainer(cls, *arguments, code=0):
        # PATH selects the python3 that has ONNX Runtime.
        environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        process = subprocess.run([BINARY, *arguments], cwd=cls.folder, env=environment, capture_output=True, text=True, timeout=300)
        if process.returncode != code:
            raise AssertionError(f"trainer {' '.join(arguments)}: {process.returncode}\n{process.stdout}\n{process.stderr}")
        return process.stdout

    def checkpoint(self, name):
        return self.folder / f"run_{name}" / "checkpoints" / "last.pt"

    def predictions(self, name):
        files = [f"val_{i}.png" for i in range(SPLITS["val"])]
        return [json.loads(line) for line in self.trainer("predict", "--checkpoint", str(self.checkpoint(name)), "--json", *files).splitlines()]

    def exported(self, name, format, outputs):
        file = self.folder / f"{name}_{outputs}.{format}"
        if not file.exists():
            self.trainer("export", "--checkpoint", str(self.checkpoint(name)), "--format", format, "--output", file.name, "--outputs", outputs)
        images = [numpy.asarray(Image.open(self.folder / f"val_{i}.png"))[None] for i in range(SPLITS["val"])]
        if format == "torchscript":
            network = torch.jit.load(file)
            return torch.cat([network(torch.from_numpy(image.copy())) for image in images]).detach()
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        return torch.from_numpy(numpy.concatenate([session.run([outputs], {"image": image})[0] for image in images]))

    def evaluation(self, name):
        return read_json(self.folder / f"run_{name}" / "evaluation.json")

    def test_any_number_of_classes(self):
        evaluation = self.evaluation("classes")
        logits = self.exported("classes", "torchscript", "logits").double()
        targets = torch.from_numpy(self.classes["val"]).long()
        positives = torch.from_numpy(self.classes["train"]).sum(0).double()
        loss = torch.nn.BCEWithLogitsLoss(pos_weight=(SPLITS["train"] - positives) / positives)(logits, targets.double())
        # The exported file computes the preprocessing in float32, therefore the tolerance.
        self.assertAlmostEqual(evaluation["metrics"]["loss"], loss.item(), delta=1e-7)
        scores = logits.float().sigmoid()
        expected = multilabel_average_precision(scores, targets, 3, average=None)
        for label, one in enumerate(evaluation["classes"]):
            self.assertEqual((one["name"], one["num_samples"]), (CLASSES[label], int(targets[:, label].sum())))
            self.assertAlmostEqual(one["average_precision"], expected[label].item(), delta=1e-6)
            # The stored threshold has the best F1 of all thresholds.
            best = max(self.f1(scores[:, label] >= threshold, targets[:, label]) for threshold in scores[:, label])
            self.assertAlmostEqual(one["f1"], best, delta=1e-9)
        self.assertAlmostEqual(evaluation["metrics"]["map"], multilabel_average_precision(scores, targets, 3).item(), delta=1e-6)
        thresholds = torch.tensor([one["threshold"] for one in evaluation["classes"]], dtype=torch.float64)
        decided = (scores.double() >= thresholds).long()
        self.assertAlmostEqual(evaluation["metrics"]["macro_f1"], multilabel_f1_score(decided, targets, 3).item(), delta=1e-6)
        self.assertAlmostEqual(evaluation["metrics"]["exact_match"], multilabel_exact_match(decided, targets, 3).item(), delta=1e-6)
        together = targets.T @ targets
        self.assertEqual(evaluation["co_occurrence"], together.tolist())
        # predict, exported files and the library give the same probabilities.
        for row, line in enumerate(self.predictions("classes")):
            for one in line["classes"]:
                self.assertAlmostEqual(one["probability"], logits[row, one["label"]].sigmoid().item(), delta=1e-6)
                self.assertEqual(one["predicted"], bool(decided[row, one["label"]]), (row, one))
        self.assertLess((self.exported("classes", "onnx", "probabilities") - logits.sigmoid()).abs().max().item(), 1e-5)
        self.trainer("verify-export", "classes_probabilities.onnx", "--checkpoint", str(self.checkpoint("classes")))
        extra = {"trainer.json": ""}
        torch.jit.load(self.folder / "classes_logits.torchscript", _extra_files=extra)
        self.assertEqual(json.loads(extra["trainer.json"])["thresholds"], thresholds.tolist())
        self.check_library("classes", 1, logits.sigmoid(), thresholds.tolist())

    def test_other_images_are_judged_at_the_stored_thresholds(self):
        thresholds = torch.tensor([one["threshold"] for one in self.evaluation("classes")["classes"]], dtype=torch.float64)
        # The images of the training, without those that show rust, which leaves a class without images.
        rows = [i for i in range(SPLITS["train"]) if not self.classes["train"][i, 1]]
        with open(self.folder / "other.csv", "w", newline="") as file:
            csv.writer(file).writerows([["path", *CLASSES]] + [[f"train_{i}.png", *map(int, self.classes["train"][i])] for i in rows])
        files = [f"train_{i}.png" for i in rows]
        lines = [json.loads(line) for line in self.trainer("predict", "--checkpoint", str(self.checkpoint("classes")), "--json", *files).splitlines()]
        scores = torch.tensor([[one["probability"] for one in sorted(line["classes"], key=lambda one: one["label"])] for line in lines], dtype=torch.float64)
        targets = torch.from_numpy(self.classes["train"][rows]).long()
        decided = (scores >= thresholds).long()
        found = {}
        for command in (["eval"], ["launch", "--nproc-per-node", "2", "eval"]):
            found = json.loads(self.trainer(*command, "--checkpoint", str(self.checkpoint("classes")), "--data", "other.csv", "--json"))
            self.assertEqual([one["threshold"] for one in found["classes"]], thresholds.tolist())
            f1 = multilabel_f1_score(decided, targets, 3, average=None)
            precision = multilabel_precision(decided, targets, 3, average=None)
            for label, one in enumerate(found["classes"]):
                self.assertAlmostEqual(one["f1"], f1[label].item(), delta=1e-6)
                self.assertAlmostEqual(one["precision"], precision[label].item(), delta=1e-6)
            self.assertAlmostEqual(found["metrics"]["macro_f1"], f1[[0, 2]].mean().item(), delta=1e-6)
            self.assertAlmostEqual(found["metrics"]["exact_match"], multilabel_exact_match(decided, targets, 3).item(), delta=1e-6)
            # torchmetrics counts a class without images as 0.
            average = multilabel_average_precision(scores, targets, 3, average=None)
            self.assertEqual(average[1].item(), 0)
            self.assertAlmostEqual(found["metrics"]["map"], average[[0, 2]].mean().item(), delta=1e-6)
            self.assertAlmostEqual(multilabel_average_precision(scores, targets, 3).item(), found["metrics"]["map"] * 2 / 3, delta=1e-6)
            best = [max(self.f1(scores[:, label] >= threshold, targets[:, label]) for threshold in scores[:, label]) for label in (0, 2)]
            self.assertAlmostEqual(found["refitted_metrics"]["macro_f1"], sum(best) / 2, delta=1e-9)
            self.assertGreater(found["refitted_metrics"]["macro_f1"], found["metrics"]["macro_f1"])
        shown = self.trainer("eval", "--checkpoint", str(self.checkpoint("classes")), "--data", "other.csv")
        self.assertIn(f"At the best thresholds for these images, which is too favourable:  macro_f1 {found['refitted_metrics']['macro_f1']:.4f}", shown)

    @staticmethod
    def f1(predicted, actual):
        hits = (predicted & (actual == 1)).sum().item()
        return 2 * hits / (predicted.sum().item() + actual.sum().item())

    def test_numbers(self):
        evaluation = self.evaluation("numbers")
        train = self.numbers["train"]
        summary = torch.load(self.checkpoint("numbers"), weights_only=True)["target_summary"]
        numpy.testing.assert_allclose(summary["mean"], train.mean(0), rtol=1e-12)
        numpy.testing.assert_allclose(summary["deviation"], train.std(0), rtol=1e-9)
        mean, deviation = torch.tensor(summary["mean"], dtype=torch.float64), torch.tensor(summary["deviation"], dtype=torch.float64)
        logits = self.exported("numbers", "torchscript", "logits").double()
        targets = torch.from_numpy(self.numbers["val"])
        loss = torch.nn.HuberLoss(delta=0.7)(logits, (targets - mean) / deviation)
        self.assertAlmostEqual(evaluation["metrics"]["loss"], loss.item(), delta=1e-7)
        values = logits * deviation + mean
        metrics = {"mae": MeanAbsoluteError(), "rmse": MeanSquaredError(squared=False), "r2": R2Score()}
        for name, metric in metrics.items():
            self.assertAlmostEqual(evaluation["metrics"][name], metric.set_dtype(torch.float64)(values, targets).item(), delta=1e-4, msg=name)
        for number, one in enumerate(evaluation["numbers"]):
            error = values[:, number] - targets[:, number]
            self.assertEqual(one["name"], NUMBERS[number])
            self.assertAlmostEqual(one["mae"], error.abs().mean().item(), delta=1e-4)
            self.assertAlmostEqual(one["rmse"], error.square().mean().sqrt().item(), delta=1e-4)
        self.assertEqual(torch.tensor(evaluation["targets"]).shape, (SPLITS["val"], 2))
        numpy.testing.assert_allclose(evaluation["predictions"], values.float(), rtol=1e-6)
        for row, line in enumerate(self.predictions("numbers")):
            self.assertEqual(list(line["values"]), NUMBERS)
            numpy.testing.assert_allclose(list(line["values"].values()), values[row], rtol=1e-7)
        # float32 represents 5000 with 24 bits, therefore the tolerance.
        numpy.testing.assert_allclose(self.exported("numbers", "onnx", "values"), values, rtol=1e-6)
        self.trainer("verify-export", "numbers_values.onnx", "--checkpoint", str(self.checkpoint("numbers")), "--tolerance", "0.01")
        self.check_library("numbers", 2, values, [])

    def check_library(self, name, kind, expected, thresholds):
        library = ctypes.CDLL(str(LIBRARY))
        library.trainer_predict_open.restype = ctypes.c_void_p
        library.trainer_predict_threshold.restype = ctypes.c_double
        error = ctypes.create_string_buffer(1000)
        opened = library.trainer_predict_open(str(self.checkpoint(name)).encode(), b"cpu", 0, error, ctypes.c_size_t(len(error)))
        self.assertTrue(opened, error.value)
        predictor = ctypes.c_void_p(opened)
        self.addCleanup(library.trainer_predict_close, predictor)
        self.assertEqual(library.trainer_predict_kind(predictor), kind)
        self.assertEqual([library.trainer_predict_threshold(predictor, ctypes.c_int64(i)) for i in range(len(thresholds))], thresholds)
        values = (ctypes.c_double * expected.size(1))()
        for row in (0, 5):
            file = str(self.folder / f"val_{row}.png").encode()
            self.assertEqual(library.trainer_predict_file(predictor, file, values, None, error, ctypes.c_size_t(len(error))), 0, error.value)
            numpy.testing.assert_allclose(list(values), expected[row], rtol=1e-5)
        self.assertEqual(library.trainer_predict_decide(predictor, values), -1)

    def test_resumed_runs_and_ranks_are_equal(self):
        for name in ("classes", "numbers"):
            output = self.trainer("verify-resume", "--config", f"{name}.yaml", "--steps", "10")
            self.assertIn("equal, bit for bit", output)
            self.trainer("--config", f"{name}.yaml", "--run-dir", f"alone_{name}")
            alone = read_json(self.folder / f"alone_{name}" / "evaluation.json")
            for metric, value in self.evaluation(name)["metrics"].items():
                self.assertAlmostEqual(value, alone["metrics"][metric], delta=1e-9 * max(1, abs(value)), msg=f"{name}: {metric}")

    def test_other_data_follow_the_names_of_the_columns(self):
        for name, columns in (("classes", CLASSES), ("numbers", NUMBERS)):
            with open(self.folder / f"val_{name}.csv", newline="") as file:
                rows = list(csv.DictReader(file))
            with open(self.folder / f"turned_{name}.csv", "w", newline="") as file:
                csv.writer(file).writerows([["path", *columns[::-1]]] + [[row["path"], *(row[column] for column in columns[::-1])] for row in rows])
            evaluated = json.loads(self.trainer("eval", "--checkpoint", str(self.checkpoint(name)), "--data", f"turned_{name}.csv", "--json"))
            for metric, value in self.evaluation(name)["metrics"].items():
                self.assertAlmostEqual(evaluated["metrics"][metric], value, delta=1e-12 * max(1, abs(value)), msg=f"{name}: {metric}")

    def test_other_data_have_the_separator_of_the_training(self):
        with open(self.folder / "val_classes.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        with open(self.folder / "lists.csv", "w", newline="") as file:
            csv.writer(file).writerows([["path", "classes"]] + [[row["path"], " + ".join(name for name in CLASSES[::-1] if row[name] == "1")] for row in rows])
        evaluated = json.loads(self.trainer("eval", "--checkpoint", str(self.checkpoint("classes")), "--data", "lists.csv", "--json"))
        for metric, value in self.evaluation("classes")["metrics"].items():
            self.assertAlmostEqual(evaluated["metrics"][metric], value, delta=1e-12 * max(1, abs(value)), msg=metric)

    def refusal(self, *arguments, code=2):
        process = subprocess.run([BINARY, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        return process.stderr

    def test_what_does_not_fit_is_refused(self):
        for name, overrides, text in (
            ("classes", ["loss={name: cross_entropy}"], "loss.name: cross_entropy needs exactly one class per image, but images of csv can have any number of classes; set loss.name: bce"),
            ("classes", ["loss.pos_weight=[1, 2]"], "loss.pos_weight: has 2 numbers, but there are 3 classes; set one number per class"),
            ("classes", ["loss={name: mse}"], "loss.name: mse needs floating-point targets, but csv has class labels"),
            ("classes", ["dataloader.sampler.name=class_balanced"], "dataloader.sampler.name: class_balanced needs one class per sample, but the targets of csv are lists of classes"),
            ("classes", ["dataset.batch_transforms=[mixup]"], "dataset.batch_transforms[0]: mixup mixes class labels, but the targets of csv are lists of classes; remove it"),
            ("numbers", ["task.name=multi_label", "loss={name: bce}"], "task.name: multi_label needs targets with any number of classes per image, but csv has numbers; remove the task section"),
            ("numbers", ["loss={name: huber, delta: 0}"], "loss.delta: expected a number > 0, got 0"),
            ("numbers", ["checkpoint.monitor=validation/map"], "checkpoint.monitor: the task regression does not measure validation/map; choose validation/loss"),
            ("numbers", ["dataset.columns=[height]"], 'has no column "height", only length, weight; correct that line or dataset.columns'),
        ):
            self.assertIn(text, self.refusal("--config", f"{name}.yaml", "--run-dir", "refused", *overrides))
        self.assertIn("--reject-below: the network does not choose one class for each image",
                      self.refusal("predict", "--checkpoint", str(self.checkpoint("classes")), "--reject-below", "0.5", "val_0.png"))
        self.assertIn("--outputs probabilities: the network computes numbers; choose values",
                      self.refusal("export", "--checkpoint", str(self.checkpoint("numbers")), "--output", "no.onnx", "--outputs", "probabilities"))
        self.assertIn("nothing to calibrate", self.refusal("calibrate", "--checkpoint", str(self.checkpoint("classes"))))

    def test_starting_files(self):
        with open(self.folder / "list.csv", "w") as file:
            file.writelines(f"train_{i}.png,{';'.join(c for c, has in zip(CLASSES, row) if has)}\n" for i, row in enumerate(self.classes["train"]))
        (self.folder / "one_number.csv").write_text("path,x\n" + "".join(f"train_{i}.png,{i / 4}\n" for i in range(96)))
        (self.folder / "incomplete.csv").write_text("train_0.png,cat\ntrain_1.png,\n")
        self.assertIn("line 2 has no label; add it", self.refusal("init", "--data", "incomplete.csv", "--output", "no.yaml", code=3))
        for source, expected in (("train_classes.csv", ["targets: classes", "loss: {name: bce, pos_weight: auto}"]),
                                 ("list.csv", ["targets: classes", "dent", "rust"]),
                                 ("one_number.csv", ["targets: numbers", "loss: {name: mse}", "with 1 number each"]),
                                 ("train_numbers.csv", ["targets: numbers", "loss: {name: mse}", "length 5659 ± 294.6", "- resize: {size: [20, 24]}"])):
            file = f"started_{source}.yaml"
            self.trainer("init", "--data", source, "--output", file)
            text = (self.folder / file).read_text()
            for part in expected[:3]:
                self.assertIn(part, text)
            self.trainer("--config", file, "--run-dir", f"run_started_{source}", "training={epochs: null, steps: 1}", "lr_scheduler.warmup_epochs=0")
            self.trainer("data", "show", "--config", file, "--output", "show.png")

    def test_tables(self):
        text = self.trainer("eval", "--checkpoint", str(self.checkpoint("classes")))
        self.assertRegex(text, r"\nclass +samples +AP +threshold +recall +precision +f1\ndent +\d+ +0\.\d{4} ")
        text = self.trainer("eval", "--checkpoint", str(self.checkpoint("numbers")))
        self.assertRegex(text, r"\nnumber +mae +rmse +r2\nlength +\d")
        text = self.trainer("predict", "--checkpoint", str(self.checkpoint("numbers")), "--csv", "val_0.png", "missing.png", code=3)
        self.assertRegex(text, r"^file,error,length,weight\nval_0\.png,,\d[^,]*,[^,]+\nmissing\.png,[^,]+,,\n$")
        self.assertRegex(self.trainer("predict", "--checkpoint", str(self.checkpoint("numbers")), "val_0.png"), r"^val_0\.png  length \d\S+  weight \S+\n$")

    def test_a_packed_data_set_gives_the_same_training(self):
        for name in ("classes", "numbers"):
            self.trainer("data", "pack", "--config", f"{name}.yaml", "--output", f"packed_{name}")
            self.trainer("launch", "--nproc-per-node", "2", "--config", f"{name}.yaml", "--run-dir", f"run_packed_{name}",
                         "dataset={name: lmdb, root: packed_" + name + ", train_transforms: [resize: {size: [16, 16]}], "
                         "validation_transforms: [resize: {size: [16, 16]}], distribution: scatter, distribution_group_size: 2}")
            self.assertEqual(read_json(self.folder / f"run_packed_{name}" / "evaluation.json"), self.evaluation(name))
            # Predictions of a run on packed data do not need the data.
            checkpoint = self.folder / f"run_packed_{name}" / "checkpoints" / "last.pt"
            with_data = self.trainer("predict", "--checkpoint", str(checkpoint), "--json", "val_0.png")
            (self.folder / f"packed_{name}").rename(self.folder / f"moved_{name}")
            self.assertEqual(self.trainer("predict", "--checkpoint", str(checkpoint), "--json", "val_0.png"), with_data)
            self.trainer("export", "--checkpoint", str(checkpoint), "--output", f"packed_{name}.onnx")
            evaluated = json.loads(self.trainer("eval", "--checkpoint", str(checkpoint), "--data", f"val_{name}.csv", "--json"))
            self.assertEqual(evaluated["metrics"], json.loads(self.trainer("eval", "--checkpoint", str(self.checkpoint(name)), "--json"))["metrics"])

    def test_averaged_parameters_have_thresholds_of_their_own(self):
        self.trainer("--config", "classes.yaml", "--run-dir", "run_ema", "training={epochs: 2, ema: {decay: 0.5}}")
        checkpoint = str(self.folder / "run_ema" / "checkpoints" / "last.pt")
        evaluated = json.loads(self.trainer("eval", "--checkpoint", checkpoint, "--ema", "--json"))
        stored = torch.load(checkpoint, weights_only=True)["last_validation"]
        self.assertEqual(stored["ema_thresholds"], [one["threshold"] for one in evaluated["classes"]])
        self.assertNotEqual(stored["ema_thresholds"], stored["thresholds"])
        for line in self.trainer("predict", "--checkpoint", checkpoint, "--ema", "--json", *[f"val_{i}.png" for i in range(20)]).splitlines():
            for one in json.loads(line)["classes"]:
                self.assertEqual(one["predicted"], one["probability"] >= stored["ema_thresholds"][one["label"]])

    def test_the_mean_of_the_targets_is_not_lost(self):
        first = str(self.checkpoint("numbers").with_name("step_00000008.pt"))
        self.trainer("checkpoint", "average", first, str(self.checkpoint("numbers")), "--output", "mean.pt")
        self.assertGreater(json.loads(self.trainer("predict", "--checkpoint", "mean.pt", "--json", "val_0.png"))["values"]["length"], 3000)
        self.trainer("export", "--checkpoint", str(self.checkpoint("numbers")), "--format", "safetensors", "--output", "numbers.safetensors")
        text = self.refusal("predict", "--checkpoint", "numbers.safetensors", "--config", "numbers.yaml", "val_0.png")
        self.assertIn("this file lacks the mean and standard deviation of the targets", text)
        swapped = [line.split(",") for line in (self.folder / "train_numbers.csv").read_text().splitlines()]
        (self.folder / "swapped.csv").write_text("".join(f"{a},{c},{b}\n" for a, b, c in swapped))
        text = self.refusal("--config", "numbers.yaml", "--run-dir", "run_swapped", "--resume", str(self.checkpoint("numbers")), "training.epochs=4", "dataset.train=swapped.csv")
        self.assertIn("this network was trained on the targets length, weight, but the targets of the data are weight, length now", text)

    def test_validate_needs_no_data(self):
        for name in ("classes", "numbers"):
            self.trainer("validate", "--config", f"{name}.yaml", "dataset.train=missing.csv", "dataset.validation=missing.csv")
            self.assertNotIn("[W", self.trainer("validate", "--config", f"{name}.yaml"))


if __name__ == "__main__":
    unittest.main()
