"""examples/segmentation: its mean intersection over union equals that of torchmetrics, on images and masks that Pillow has read and
resized. Training on one and on two processes gives the same results, and a resumed run is exact."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy
import torch
import torchmetrics.classification
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALLED = pathlib.Path(os.environ["TRAINER_BUILD_DIR"]) / "installed"
TRAINER = INSTALLED / "a new place" / "bin" / "trainer"
PLUGIN = INSTALLED / "build" / "libsegmentation.so"
NO_CLASS = 255


def draw(random):
    """Draws discs with label 1 and squares with label 2 on noise; the first rows belong to no class."""
    height, width = random.integers(60, 90, 2)
    image = random.integers(0, 80, (height, width, 3)).astype(numpy.uint8)
    mask = numpy.zeros((height, width), numpy.uint8)
    y, x = numpy.mgrid[:height, :width]
    for label in (1, 2, 1, 2):
        down, right, radius = abs(y - random.integers(8, height - 8)), abs(x - random.integers(8, width - 8)), random.integers(6, 14)
        inside = down**2 + right**2 < radius**2 if label == 1 else numpy.maximum(down, right) < radius
        image[inside] = random.integers(90, 255, 3)
        mask[inside] = label
    mask[:3] = NO_CLASS
    return image, mask


class SegmentationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-segmentation-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        random = numpy.random.default_rng(1)
        for split, count in (("train", 64), ("validation", 37)):
            for kind in ("images", "masks"):
                (cls.folder / "data" / split / kind).mkdir(parents=True)
            for i in range(count):
                for kind, pixels in zip(("images", "masks"), draw(random), strict=True):
                    Image.fromarray(pixels).save(cls.folder / "data" / split / kind / f"{i}.png")
        cls.experiment = ["--config", ROOT / "examples/segmentation/segmentation.yaml", f"plugins=[{PLUGIN}]", f"dataset.root={cls.folder / 'data'}",
                          "runtime={dtype: float64, threads: 1, device: cpu}", "model.width=8", "training.epochs=3", "optimizer.lr=0.01"]
        for ranks, *overrides in ((1,), (2, "dataset.distribution=scatter")):
            cls.run_trainer("launch", "--nproc-per-node", ranks, *cls.experiment, *overrides, "--run-dir", cls.folder / str(ranks))
        cls.best = cls.folder / "2/checkpoints/best.pt"

    @classmethod
    def run_trainer(cls, *args, refusal=None):
        result = subprocess.run([TRAINER, *map(str, args)], cwd=cls.folder, capture_output=True, text=True)
        assert result.returncode == (0 if refusal is None else 2), result.stderr
        assert refusal is None or (refusal in result.stderr and result.stderr.count("\n") == 1), result.stderr
        return result.stdout

    def test_mean_iou_equals_torchmetrics(self):
        measured = json.loads(self.run_trainer("eval", "--checkpoint", self.best, "--plugin", PLUGIN, "--json"))["metrics"]
        self.run_trainer("export", "--checkpoint", self.best, "--plugin", PLUGIN, "--format", "torchscript", "--input", "tensor", "--output", "net.pt")
        network = torch.jit.load(self.folder / "net.pt")
        iou = torchmetrics.classification.MulticlassJaccardIndex(3, ignore_index=NO_CLASS)
        accuracy = torchmetrics.classification.MulticlassAccuracy(3, average="micro", ignore_index=NO_CLASS)
        folder = self.folder / "data" / "validation"
        for file in (folder / "images").iterdir():
            image, mask = Image.open(file), Image.open(folder / "masks" / file.name)
            pixels = torch.from_numpy(numpy.array(image.resize((64, 64), Image.BILINEAR))).to(torch.float64).permute(2, 0, 1) / 255
            labels = torch.from_numpy(numpy.array(mask.resize((64, 64), Image.NEAREST)))[None]
            outputs = network(((pixels - 0.5) / 0.25)[None])
            for metric in (iou, accuracy):
                metric.update(outputs.argmax(1), labels)
        self.assertGreater(measured["mean_iou"], 0.4)
        self.assertAlmostEqual(measured["mean_iou"], iou.compute().item(), delta=1e-6)  # torchmetrics divides in float32
        self.assertAlmostEqual(measured["pixel_accuracy"], accuracy.compute().item(), delta=1e-6)

    def test_trains_alike_on_two_processes_and_resumes_exactly(self):
        one, two = ([event for line in (self.folder / ranks / "metrics.jsonl").read_text().splitlines() if (event := json.loads(line))["event"] == kind]
                    for ranks in "12" for kind in ["validation"])
        self.assertEqual(len(one), 3)
        for here, there in zip(one, two, strict=True):
            for name in ("loss", "pixel_accuracy", "mean_iou"):
                self.assertAlmostEqual(here[name], there[name], delta=1e-9)
        self.run_trainer("verify-resume", *self.experiment)

    def test_what_does_not_fit_masks_is_refused(self):
        self.run_trainer("validate", *self.experiment)
        for override, refusal in (
            ("dataset.batch_transforms=[mixup]", "mixup mixes class labels, but the targets of masked_folder are masks; remove it"),
            ("dataloader.sampler.name=class_balanced", "class_balanced needs one class per sample, but the targets of masked_folder are masks; choose another sampler"),
            ("validation.tta=flip", "flip needs images with one target each, but masked_folder has masks; set validation.tta: none"),
            ("task.name=regression", "regression needs a loss for numbers, such as mse; choose one, or remove the task section"),
            ("loss={name: cross_entropy}", "loss.name: cross_entropy is not a loss for pixels; use pixel_cross_entropy"),
            ("task.name=classification", "classification needs one class label per image, but masked_folder has one per pixel"),
            ("checkpoint.monitor=validation/top1", "the task segmentation does not measure validation/top1; choose validation/mean_iou"),
        ):
            self.run_trainer("validate", *self.experiment, override, refusal=refusal)
        self.run_trainer("eval", "--checkpoint", self.best, "--plugin", PLUGIN, "dataset.classes=[background, square, disc]",
                         refusal="have other classes than the training masks (background, disc, square); use the same classes in the same order")
        image = self.folder / "data/validation/images/0.png"
        self.run_trainer("predict", "--checkpoint", self.best, "--plugin", PLUGIN, image, refusal="masked_folder, which has no labels of whole images")
        self.run_trainer("data", "pack", *self.experiment, "--output", "packed", refusal="masked_folder has masks, which a packed")


if __name__ == "__main__":
    unittest.main()
