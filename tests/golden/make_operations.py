"""Writes operations.txt and blurs.txt: what torchvision's operations make of PIL images, for tests/unit/input/operations_test.cpp.

Each line of operations.txt: the image's height, width and channels, the operation with its arguments or a list of transforms in YAML, and
the FNV-1a (64 bits) of the resulting pixels, row by row, channels interleaved. The image has values from the whole range in even lines and a
third of it in odd ones. Each line of blurs.txt: height, width, channels, width and height of the kernel, sigma, and the pixels in
hexadecimal digits.
"""

import pathlib

import numpy
import torchvision.transforms as T
import torchvision.transforms.functional as F
from PIL import Image

SIZES = [(1, 9, 3), (2, 2, 3), (7, 5, 1), (31, 47, 3), (64, 64, 3), (40, 40, 1), (100, 75, 3)]
BLURS = [(1, 9, 3, 5, 1, 1.0), (8, 8, 3, 3, 3, 0.1), (8, 8, 1, 5, 5, 2.0), (32, 32, 3, 3, 3, 0.7), (20, 33, 3, 23, 23, 1.3), (20, 33, 3, 7, 3, 5.0)]


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def image(height, width, channels, dull=False):
    y, x, c = numpy.ogrid[:height, :width, :channels]
    pixels = ((x * 37 + y * 101 + c * 53 + x * y * 7) % 256).astype(numpy.uint8)
    if dull:
        pixels = pixels // 3 + 40
    return Image.fromarray(pixels if channels == 3 else pixels[:, :, 0])


def operations():
    for name in "adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_sharpness":
        for factor in 0, 0.37, 0.9, 1, 1.37, 3:
            yield f"{name} {factor}", lambda image, f=getattr(F, name), factor=factor: f(image, factor)
    for hue in -0.5, -0.21, -0.003, 0, 0.1, 0.499, 0.5:
        yield f"adjust_hue {hue}", lambda image, hue=hue: F.adjust_hue(image, hue)
    for angle in 0, 0.01, 17.3, 45, 90, 135.5, 180, 200, 270, 359.9, 360, -0.01, -33, -90, -180, -270:
        yield f"rotate {angle}", lambda image, angle=angle: F.rotate(image, angle, fill=0)


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


FOLDER = pathlib.Path(__file__).parent
with open(FOLDER / "operations.txt", "w") as out:
    line = 0
    for size in SIZES:
        for name, operation in [*operations(), *((f"[{yaml}]", transform) for yaml, transform in lists())]:
            result = operation(image(*size, dull=line % 2 == 1))
            print(*size, name, f"{fnv1a(result.tobytes()):016x}", sep="\t", file=out)
            line += 1
with open(FOLDER / "blurs.txt", "w") as out:
    for *size, kernel_width, kernel_height, sigma in BLURS:
        result = F.gaussian_blur(image(*size), [kernel_width, kernel_height], [sigma, sigma])
        print(*size, kernel_width, kernel_height, sigma, result.tobytes().hex(), sep="\t", file=out)
