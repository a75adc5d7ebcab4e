"""Writes operations.txt, blurs.txt and magnitudes.txt for tests/unit/data/operations_test.cpp: what torchvision's operations make of PIL
images, and its magnitudes of augmentations.

Each line of operations.txt: the image's height, width and channels, the operation with its argument or a list of transforms in YAML, and
the FNV-1a (64 bits) of the resulting pixels, row by row, channels interleaved. The image has values from the whole range in odd lines,
and from a third of it in even lines. Each line of blurs.txt: height, width, channels, width and height of the kernel, sigma, and the pixels
in hexadecimal digits. Each line of magnitudes.txt: the transform that defines them, the operation, the number of magnitudes, the image's
height and width, and the FNV-1a of the magnitudes, each in float64 (little-endian).
"""

import pathlib
import struct

import numpy
import torchvision.transforms as T
import torchvision.transforms.functional as F
from PIL import Image
from checksum import fnv1a
from torchvision.transforms import autoaugment

SIZES = [(1, 1, 3), (1, 9, 3), (7, 5, 1), (31, 47, 3), (64, 64, 3)]
BLURS = [(1, 9, 3, 5, 1, 1.0), (8, 8, 3, 3, 3, 0.1), (8, 8, 1, 5, 5, 2.0), (32, 32, 3, 3, 3, 0.7),
         (20, 33, 3, 23, 23, 1.3), (20, 33, 3, 7, 3, 5.0)]


def image(height, width, channels, dull=False):
    y, x, c = numpy.ogrid[:height, :width, :channels]
    pixels = ((x * 37 + y * 101 + c * 53 + x * y * 7) % 256).astype(numpy.uint8)
    if dull:
        pixels = pixels // 3 + 40
    return Image.fromarray(pixels if channels == 3 else pixels[:, :, 0])


def augmentation(name, magnitude):
    return f"{name} {magnitude}", lambda image: autoaugment._apply_op(image, name, magnitude, F.InterpolationMode.NEAREST, None)


def operations():
    for name in "Brightness", "Contrast", "Color", "Sharpness":
        for magnitude in -1, -0.63, -0.1, 0, 0.37, 2:
            yield augmentation(name, magnitude)
    for name in "ShearX", "ShearY":
        for magnitude in -0.99, -0.3, -0.01, 0, 0.15, 0.8:
            yield augmentation(name, magnitude)
    for name in "TranslateX", "TranslateY":
        for magnitude in -150, -3.7, 0, 1, 9.9:
            yield augmentation(name, magnitude)
    for bits in range(1, 9):
        yield augmentation("Posterize", bits)
    for threshold in 0, 100.5, 128, 255, 256:
        yield augmentation("Solarize", threshold)
    for name in "AutoContrast", "Equalize", "Invert", "Identity":
        yield augmentation(name, 0)
    for hue in -0.5, -0.21, -0.003, 0, 0.1, 0.499, 0.5:
        yield f"adjust_hue {hue}", lambda image, hue=hue: F.adjust_hue(image, hue)
    for angle in 0, 0.01, 17.3, 45, 90, 135.5, 180, 200, 270, 359.9, 360, -0.01, -33, -90, -180, -270:
        yield augmentation("Rotate", angle)


def lists():
    """Crops, flips and resizes, which move a window, between operations on pixels."""
    grey = T.RandomGrayscale(1)
    flips = T.RandomHorizontalFlip(1), T.RandomVerticalFlip(1)
    yield "random_vertical_flip: {p: 1}", flips[1]
    yield "random_grayscale: {p: 1}", grey
    yield ("random_vertical_flip: {p: 1}, center_crop: {size: [6, 9]}, random_grayscale: {p: 1}, random_horizontal_flip: {p: 1}, "
           "random_rotation: {degrees: [33, 33]}, random_vertical_flip: {p: 1}, resize: {size: [5, 8]}",
           T.Compose([flips[1], T.CenterCrop((6, 9)), grey, flips[0], T.RandomRotation((33, 33)), flips[1], T.Resize((5, 8))]))
    yield ("resize: {size: [9, 12]}, random_vertical_flip: {p: 1}, center_crop: {size: [7, 14]}, color_jitter: {brightness: [1.3, 1.3]}, "
           "color_jitter: {contrast: [0.7, 0.7]}, center_crop: {size: [5, 5]}, random_vertical_flip: {p: 1}, center_crop: {size: [3, 4]}, "
           "color_jitter: {hue: [0.2, 0.2]}, color_jitter: {saturation: [2, 2]}",
           T.Compose([T.Resize((9, 12)), flips[1], T.CenterCrop((7, 14)), T.ColorJitter(brightness=(1.3, 1.3)),
                      T.ColorJitter(contrast=(0.7, 0.7)), T.CenterCrop((5, 5)), flips[1], T.CenterCrop((3, 4)),
                      T.ColorJitter(hue=(0.2, 0.2)), T.ColorJitter(saturation=(2, 2))]))
    yield ("random_rotation: {degrees: [180, 180]}, resize: {size: [10, 11]}, random_rotation: {degrees: [-20, -20]}, "
           "random_rotation: {degrees: [180, 180]}",
           T.Compose([T.RandomRotation((180, 180)), T.Resize((10, 11)), T.RandomRotation((-20, -20)), T.RandomRotation((180, 180))]))


def magnitudes():
    for bins in 2, 31, 100:
        for size in (32, 32), (224, 160), (7, 333):
            yield "rand_augment", bins, size, T.RandAugment()._augmentation_space(bins, size)
        yield "trivial_augment_wide", bins, (32, 32), T.TrivialAugmentWide()._augmentation_space(bins)


FOLDER = pathlib.Path(__file__).parent
with open(FOLDER / "operations.txt", "w") as out:
    line = 0
    for size in SIZES:
        for name, operation in [*operations(), *((f"[{yaml}]", transform) for yaml, transform in lists())]:
            result = operation(image(*size, dull=line % 2 == 1))
            print(*size, name, fnv1a(result.tobytes()), sep="\t", file=out)
            line += 1
with open(FOLDER / "blurs.txt", "w") as out:
    for *size, kernel_width, kernel_height, sigma in BLURS:
        result = F.gaussian_blur(image(*size), [kernel_width, kernel_height], [sigma, sigma])
        print(*size, kernel_width, kernel_height, sigma, result.tobytes().hex(), sep="\t", file=out)
with open(FOLDER / "magnitudes.txt", "w") as out:
    for transform, bins, size, space in magnitudes():
        for name, (values, _) in space.items():
            values = values.tolist() if values.ndim > 0 else [0.0] * bins
            print(transform, name, bins, *size, fnv1a(struct.pack(f'<{bins}d', *values)), sep="\t", file=out)
