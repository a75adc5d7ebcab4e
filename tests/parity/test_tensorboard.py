"""TensorBoard reads and shows what a run writes. TRAINER_BINARY is the program."""

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
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "testing"))
import browser  # noqa: E402

# Without a browser, the test of the pages is skipped, or fails in CI.
HAS_BROWSER = browser.BROWSER is not None or os.environ.get("CI") == "true"
SCREENSHOTS = os.environ.get("TRAINER_SCREENSHOTS")  # a folder for screenshots of the pages
SCALARS = {"train": ("loss", "top1", "mae", "lr", "images_per_second"), "validation": ("loss", "top1", "top5", "mae", "rmse", "r2")}
IMAGES = ["--config", REPOSITORY / "configs" / "quickstart.yaml", "training.epochs=null", "training.steps=4", "logging.every_steps=1",
          "logging.histograms_every_epochs=1"]


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
    accumulator = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0})
    return accumulator.Reload()


FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="trainer-tensorboard-"))
RUNS = FOLDER / "runs"


def setUpModule():
    unittest.addModuleCleanup(shutil.rmtree, FOLDER)
    trainer("--config", REPOSITORY / "configs" / "demo_linear.yaml", "--run-dir", FOLDER / "linear")
    trainer(*IMAGES, "--run-dir", RUNS / "sgd")


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
        while len(json.load(urllib.request.urlopen(cls.address + "data/runs"))) < 1:
            assert time.monotonic() < deadline, "TensorBoard does not find the run"
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
        # The cards of train: loss, top 1, learning rate and images per second; of validation: loss, top 1 and top 5.
        self.open("timeseries", "sgd/tensorboard", "gradients /conv1.weight", "train 4 cards", "validation 3 cards")
        self.open("scalars", "loss", "images_per_second", "top5")
        self.open("histograms", "parameters", "gradients", "conv1.weight")


if __name__ == "__main__":
    unittest.main()
