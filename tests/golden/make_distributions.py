"""Writes distributions.txt: how often each result of torchvision's random transforms occurs, for tests/unit/data/distributions_test.cpp.

Each line: the transform in YAML, the image's height, width and channels, and results with their counts among 20,000. A result is the first
8 hexadecimal digits of the FNV-1a (64 bits) of its pixels. Results that occur fewer than 10 times are omitted. The image is that of
make_operations.py.
"""

import collections
import pathlib
import sys

import numpy
import torch
import torchvision.transforms as T
from PIL import Image
from checksum import fnv1a

NUM_SAMPLES = 20_000
FEWEST = 10


def image(height, width, channels):
    y, x, c = numpy.ogrid[:height, :width, :channels]
    pixels = ((x * 37 + y * 101 + c * 53 + x * y * 7) % 256).astype(numpy.uint8)
    return Image.fromarray(pixels if channels == 3 else pixels[:, :, 0])


def erasing(transform):
    """A transform of PIL images that applies this transform of tensors."""
    def apply(image):
        tensor = transform(T.functional.to_tensor(image))
        return Image.fromarray((tensor * 255).round().to(torch.uint8).movedim(0, -1).numpy())
    return apply


CASES = [
    ("random_vertical_flip: {}", T.RandomVerticalFlip(), (2, 2, 3)),
    ("random_grayscale: {}", T.RandomGrayscale(), (2, 2, 3)),
    ("color_jitter: {brightness: 0.4}", T.ColorJitter(brightness=0.4), (2, 3, 1)),
    ("color_jitter: {brightness: 1.5}", T.ColorJitter(brightness=1.5), (2, 3, 1)),
    ("color_jitter: {contrast: [0.5, 2]}", T.ColorJitter(contrast=(0.5, 2)), (2, 3, 3)),
    ("color_jitter: {saturation: 0.3}", T.ColorJitter(saturation=0.3), (1, 2, 3)),
    ("color_jitter: {hue: 0.1}", T.ColorJitter(hue=0.1), (2, 3, 3)),
    ("color_jitter: {brightness: [1.5, 1.5], contrast: [0.5, 0.5], saturation: [1.7, 1.7], hue: [0.3, 0.3]}",
     T.ColorJitter((1.5, 1.5), (0.5, 0.5), (1.7, 1.7), (0.3, 0.3)), (3, 4, 3)),
    ("random_rotation: {degrees: 180}", T.RandomRotation(180), (5, 6, 1)),
    ("random_rotation: {degrees: [10, 60]}", T.RandomRotation((10, 60)), (7, 7, 1)),
    ("gaussian_blur: {kernel_size: 3}", T.GaussianBlur(3), (2, 2, 1)),
    ("auto_augment: {}", T.AutoAugment(), (5, 6, 3)),
    ("auto_augment: {policy: cifar10}", T.AutoAugment(T.AutoAugmentPolicy.CIFAR10), (4, 9, 3)),
    ("auto_augment: {policy: svhn}", T.AutoAugment(T.AutoAugmentPolicy.SVHN), (4, 9, 1)),
    ("rand_augment: {}", T.RandAugment(), (6, 7, 3)),
    ("rand_augment: {num_ops: 1, magnitude: 4, num_magnitude_bins: 6}", T.RandAugment(1, 4, 6), (16, 16, 3)),
    ("trivial_augment_wide: {}", T.TrivialAugmentWide(), (6, 7, 3)),
    ("random_erasing: {}", erasing(T.RandomErasing()), (6, 5, 3)),
    ("random_erasing: {p: 1, scale: [0.1, 1], ratio: [0.2, 0.9]}", erasing(T.RandomErasing(1, (0.1, 1), (0.2, 0.9))), (4, 7, 3)),
]

torch.manual_seed(0)
with open(pathlib.Path(__file__).with_name("distributions.txt"), "w") as out:
    for yaml, transform, size in CASES:
        stored = image(*size)
        counts = collections.Counter(fnv1a(transform(stored).tobytes())[:8] for _ in range(NUM_SAMPLES))
        frequent = [f"{result}:{count}" for result, count in counts.most_common() if count >= FEWEST]
        print(yaml, *size, " ".join(frequent), sep="\t", file=out)
        print(yaml, len(counts), len(frequent), file=sys.stderr)
