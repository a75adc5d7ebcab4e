"""TensorBoard reads and shows what a run writes. TRAINER_BINARY is the program."""

import io
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import numpy as np
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "testing"))
import browser  # noqa: E402

# Without a browser, the test of the pages is skipped, or fails in CI.
HAS_BROWSER = browser.BROWSER is not None or os.environ.get("CI") == "true"
HAS_IMAGES = os.environ.get("TRAINER_OPENCV") != "0"
SCREENSHOTS = os.environ.get("TRAINER_SCREENSHOTS")  # a folder for screenshots of the pages
SCALARS = {"train": ("loss", "top1", "mae", "lr", "images_per_second"), "validation": ("loss", "top1", "top5", "mae", "rmse", "r2")}
IMAGES = ["--config", REPOSITORY / "configs" / "quickstart.yaml", "training.epochs=null", "training.steps=4", "logging.every_steps=1",
          "logging.histograms_every_epochs=1"]
# The second run mixes images, and has another optimizer with its own keys.
OTHER = ["optimizer={name: adamw, lr: 0.01, weight_decay: 0.05}", "dataset.batch_transforms=[mixup: {alpha: 1}]"]
NUM_CLASSES = 10
BATCH = 50


def trainer(*args):
    result = subprocess.run([os.environ["TRAINER_BINARY"], *map(str, args)], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, timeout=300)
    assert result.returncode == 0, result.stderr


def float32(value):
    """The nearest float32, which is what an event file holds."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def scalars_of_metrics(path):
    """tag -> [(step, value)], in the order of the lines."""
    scalars = {}
    for line in path.read_text().splitlines():
        event = json.loads(line)
        for name in SCALARS.get(event["event"], ()):
            if name in event:
                scalars.setdefault(f"{event['event']}/{name}", []).append((event["step"], float32(event[name])))
    return scalars


def events_of(run):
    accumulator = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "images": 0, "histograms": 0, "tensors": 0})
    return accumulator.Reload()


def pixels_of(encoded):
    return np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB")).astype(int)


FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="trainer-tensorboard-"))
RUNS = FOLDER / "runs"


def setUpModule():
    unittest.addModuleCleanup(shutil.rmtree, FOLDER)
    trainer("--config", REPOSITORY / "configs" / "demo_linear.yaml", "--run-dir", FOLDER / "linear")
    trainer(*IMAGES, "--run-dir", RUNS / "sgd")
    trainer(*IMAGES, *OTHER, "--run-dir", RUNS / "adamw")


class EventsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.events = events_of(RUNS / "sgd")

    def test_reads_every_scalar_of_a_run(self):
        for run in (FOLDER / "linear", RUNS / "sgd"):
            expected = scalars_of_metrics(run / "metrics.jsonl")
            self.assertIn("train/loss", expected)
            self.assertIn("validation/loss", expected)
            events = events_of(run)
            scalars = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
            self.assertEqual(scalars, expected)

    def test_reads_the_configuration(self):
        (event,) = self.events.Tensors("config")
        self.assertEqual(event.step, 0)
        (text,) = event.tensor_proto.string_val
        lines = text.decode().split("\n")
        self.assertTrue(all(line.startswith("    ") for line in lines[:-1]))
        self.assertEqual("\n".join(line[4:] for line in lines), (RUNS / "sgd" / "config.yaml").read_text())

    @unittest.skipUnless(HAS_IMAGES, "`trainer data show` needs OpenCV")
    def test_reads_the_first_batch(self):
        (event,) = self.events.Images("train/first_batch")
        self.assertEqual(event.step, 0)
        shown = pixels_of(event.encoded_image_string)
        self.assertEqual((event.height, event.width), shown.shape[:2])
        trainer("data", "show", *IMAGES, "--count", BATCH, "--output", FOLDER / "shown.png")
        expected = pixels_of((FOLDER / "shown.png").read_bytes())
        # Undoing the normalisation rounds, so pixels may differ by 1.
        self.assertEqual(shown.shape, expected.shape)
        self.assertLessEqual(np.abs(shown - expected).max(), 1)
        self.assertGreater(len(np.unique(shown)), 200)
        # The images of the second run are mixtures of two images.
        (event,) = events_of(RUNS / "adamw").Images("train/first_batch")
        mixed = pixels_of(event.encoded_image_string)
        self.assertEqual(mixed.shape, expected.shape)
        self.assertGreater(np.abs(mixed - expected).max(), 50)

    def test_reads_the_confusion_matrix(self):
        (event,) = self.events.Images("validation/confusion")
        self.assertEqual(event.step, 4)
        picture = pixels_of(event.encoded_image_string)
        confusion = np.array(json.loads((RUNS / "sgd" / "evaluation.json").read_text())["confusion"])
        self.assertEqual(confusion.shape, (NUM_CLASSES, NUM_CLASSES))
        shares = confusion / np.maximum(1, confusion.sum(axis=1, keepdims=True))
        expected = np.rint(255 + shares[..., None] * (np.array([8, 48, 107]) - 255))
        # Selects the upper left pixel of each cell. "1 automobile" has 12 characters.
        width = max(16, 6 * len(str(confusion.max())) + 4)
        top, left = picture.shape[0] - 4 - 16 * NUM_CLASSES, 12 * 6 + 8
        cells = picture[top:top + 16 * NUM_CLASSES:16, left:left + width * NUM_CLASSES:width]
        self.assertLessEqual(np.abs(cells - expected).max(), 1)

    def test_reads_histograms(self):
        weights = torch.load(RUNS / "sgd" / "checkpoints" / "last.pt", weights_only=True)["model"]
        parameters = {name for name in weights if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))}
        tags = self.events.Tags()["histograms"]
        self.assertEqual(set(tags), {f"{kind}/{name}" for kind in ("parameters", "gradients") for name in parameters})
        for name in parameters:
            (event,) = self.events.Histograms(f"parameters/{name}")
            self.assertEqual(event.step, 4)
            histogram, values = event.histogram_value, weights[name].double().numpy().ravel()
            self.assertEqual((histogram.min, histogram.max, histogram.num), (values.min(), values.max(), values.size))
            self.assertAlmostEqual(histogram.sum, values.sum(), delta=1e-9 * np.abs(values).sum())
            self.assertAlmostEqual(histogram.sum_squares, (values * values).sum(), delta=1e-9 * (values * values).sum())
            if histogram.min == histogram.max:
                continue
            counts, edges = np.histogram(values, bins=64, range=(values.min(), values.max()))
            np.testing.assert_allclose(histogram.bucket_limit, edges[1:], rtol=0, atol=1e-12)
            # A value on the edge of an interval may be counted on either side.
            self.assertLessEqual(np.abs(np.array(histogram.bucket) - counts).sum(), 2)
            self.assertEqual(sum(histogram.bucket), values.size)

    def test_reads_hyperparameters(self):
        content = self.events.PluginTagToContent("hparams")
        start = metadata.parse_session_start_info_plugin_data(content[metadata.SESSION_START_INFO_TAG])
        hparams = start.hparams
        self.assertEqual(hparams["optimizer.lr"].number_value, 0.1)
        self.assertEqual(hparams["optimizer.nesterov"].bool_value, True)
        self.assertEqual(hparams["model.name"].string_value, "resnet20")
        self.assertEqual(hparams["dataloader.global_batch_size"].number_value, 50)
        self.assertIn("random_crop", hparams["dataset.train_transforms"].string_value)
        self.assertFalse([name for name in hparams if name.startswith(("logging.", "checkpoint.", "experiment", "output_dir"))])
        end = metadata.parse_session_end_info_plugin_data(content[metadata.SESSION_END_INFO_TAG])
        self.assertEqual(end.status, 1)
        self.assertGreater(end.end_time_secs, start.start_time_secs)


# All text of the page, including that of elements whose content document.body.innerText does not contain.
PAGE_TEXT = """(() => { const texts = [];
  const visit = (node) => {
    if (node.nodeType === Node.TEXT_NODE) texts.push(node.data);
    if (node.shadowRoot) visit(node.shadowRoot);
    if (!["STYLE", "SCRIPT", "TEMPLATE"].includes(node.nodeName)) node.childNodes.forEach(visit);
  };
  visit(document.body);
  return texts.join(" ").replace(/\\s+/g, " "); })()"""


# Messages of TensorBoard about itself, and of a browser without a graphics card.
OWN_WARNINGS = re.compile("Multiple instances of Three.js|is deprecated|fallback to software WebGL")


@unittest.skipUnless(HAS_BROWSER, "no Chromium is installed")
class PagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", RUNS, "--port", "0", "--load_fast=false", "--reload_interval", "1"]
        cls.server = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.stop_server)
        cls.address = None
        while cls.address is None:
            line = cls.server.stderr.readline()
            assert line, "TensorBoard has ended"
            found = re.search(r"http://localhost:\d+/", line)
            cls.address = found and found.group()
        deadline = time.monotonic() + 60
        while len(json.load(urllib.request.urlopen(cls.address + "data/runs"))) < 2:
            assert time.monotonic() < deadline, "TensorBoard does not find the runs"
            time.sleep(0.1)
        cls.page = browser.Browser(FOLDER / "profile")
        cls.addClassCleanup(cls.page.close)

    @classmethod
    def stop_server(cls):
        cls.server.terminate()
        cls.server.wait(timeout=20)
        cls.server.stderr.close()

    def open(self, name, *texts):
        """Opens a page and waits until it shows these texts."""
        self.page.open("about:blank")
        self.page.open(f"{self.address}#{name}")
        for text in texts:
            try:
                self.page.wait_for(f"{PAGE_TEXT}.includes({json.dumps(text)})", seconds=30)
            except AssertionError:
                self.fail(f"{text} is not on the page {name}: {self.page.evaluate(PAGE_TEXT)[:3000]}")
        if SCREENSHOTS:
            time.sleep(2)
            self.page.screenshot(pathlib.Path(SCREENSHOTS) / f"{name}.png", whole_page=False)
        self.assertEqual([message for message in self.page.messages if not OWN_WARNINGS.search(message)], [], name)

    def test_pages(self):
        # The cards of train: loss, top 1, learning rate, images per second, and two first batches; of validation: loss, top 1, top 5, and
        # two confusion matrices.
        self.open("timeseries", "sgd/tensorboard", "gradients /conv1.weight", "train 6 cards", "validation 5 cards")
        self.open("scalars", "loss", "images_per_second", "top5")
        self.open("images", "confusion", "first_batch")
        self.open("histograms", "parameters", "gradients", "conv1.weight")
        self.open("text", "config", "experiment: quickstart", "adamw/tensorboard")
        self.open("hparams", "optimizer.lr", "optimizer.betas", "validation/loss", "0.01")


if __name__ == "__main__":
    unittest.main()
