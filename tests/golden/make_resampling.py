"""Writes resampling.txt: checksums of images that torchvision resized and cropped with Pillow, for tests/unit/data/resample_test.cpp.

Each line: the image's height and width, a list of transforms in YAML or the box and size of a crop that is resized, and the FNV-1a (64
bits) of the resulting pixels, row by row, channels interleaved.
"""

import pathlib

import numpy
import torchvision.transforms as T
import torchvision.transforms.functional as F
from PIL import Image, ImageOps
from checksum import fnv1a
from torchvision.transforms import v2

SIZES = [(1, 9), (64, 64), (100, 75), (375, 500)]


def image(height, width):
    y, x, c = numpy.ogrid[:height, :width, :3]
    return Image.fromarray(((x * 37 + y * 101 + c * 53 + x * y * 7) % 256).astype(numpy.uint8))


def lists():
    for size in 1, 3, 24, 64, 80:
        yield f"resize: {{size: {size}}}, center_crop: {{size: {max(size * 7 // 8, 1)}}}", T.Compose(
            [T.Resize(size), T.CenterCrop(max(size * 7 // 8, 1))])
    for height, width in (5, 8), (24, 24), (90, 33), (1, 1):
        yield f"resize: {{size: [{height}, {width}]}}", T.Resize((height, width))
        yield f"resize: {{size: [{height}, {width}], interpolation: bicubic}}", T.Resize((height, width), T.InterpolationMode.BICUBIC)
        for name in "lanczos", "nearest":
            yield f"resize: {{size: [{height}, {width}], interpolation: {name}}}", T.Resize((height, width), T.InterpolationMode(name))
    for name in "bilinear", "bicubic", "lanczos", "nearest":
        for size in 17, 96:
            yield f"resize: {{longest: {size}, interpolation: {name}}}", v2.Resize(None, T.InterpolationMode(name), max_size=size)
            yield f"resize: {{size: {size}, interpolation: {name}}}, center_crop: {{size: [9, 50]}}", T.Compose([T.Resize(size, T.InterpolationMode(name)), T.CenterCrop((9, 50))])
    for height, width in (32, 32), (21, 40), (64, 9), (150, 151):
        for name, fill in ("bilinear", 0), ("bicubic", 114), ("lanczos", 255), ("nearest", 7):
            yield (f"letterbox: {{size: [{height}, {width}], fill: {fill}, interpolation: {name}}}",
                   lambda image, height=height, width=width, name=name, fill=fill: ImageOps.pad(image, (width, height), Image.Resampling[name.upper()], (fill,) * 3))
    yield "pad: {padding: 5}", T.Pad(5)
    yield "pad: {padding: [1, 0, 7, 3], fill: 114}", T.Pad([1, 0, 7, 3], 114)
    yield "random_horizontal_flip: {p: 1}, pad: {padding: [1, 0, 7, 3], fill: 9}, center_crop: {size: 12}", T.Compose([T.RandomHorizontalFlip(1), T.Pad([1, 0, 7, 3], 9), T.CenterCrop(12)])
    yield "resize: {size: [20, 30]}, pad: {padding: [3, 9, 4, 1], padding_mode: reflect}", T.Compose([T.Resize((20, 30)), T.Pad([3, 9, 4, 1], padding_mode="reflect")])
    yield "resize: {longest: 40}, pad: {padding: 2, fill: 50}, letterbox: {size: 32, fill: 3}", T.Compose([v2.Resize(None, max_size=40), T.Pad(2, 50), lambda image: ImageOps.pad(image, (32, 32), Image.Resampling.BILINEAR, (3,) * 3)])
    yield "resize: {size: 33, interpolation: bicubic}, center_crop: {size: 20}", T.Compose([T.Resize(33, T.InterpolationMode.BICUBIC), T.CenterCrop(20)])
    for height, width in (4, 4), (33, 48), (64, 64), (8, 51):
        yield f"center_crop: {{size: [{height}, {width}]}}", T.CenterCrop((height, width))
    yield "center_crop: {size: [6, 9]}, resize: {size: [11, 4]}", T.Compose([T.CenterCrop((6, 9)), T.Resize((11, 4))])
    yield "resize: {size: [9, 12]}, resize: {size: [20, 7]}", T.Compose([T.Resize((9, 12)), T.Resize((20, 7))])
    yield ("resize: {size: [9, 12]}, random_horizontal_flip: {p: 1}, resize: {size: [5, 7]}, center_crop: {size: [9, 6]}",
           T.Compose([T.Resize((9, 12)), T.RandomHorizontalFlip(1), T.Resize((5, 7)), T.CenterCrop((9, 6))]))


with open(pathlib.Path(__file__).with_name("resampling.txt"), "w") as out:
    for height, width in SIZES:
        for yaml, transform in lists():
            print(height, width, f"[{yaml}]", fnv1a(transform(image(height, width)).tobytes()), sep="\t", file=out)
        for top, left, bottom, right in (0, 0, 1, 1), (0, 0.5, 1, 1), (0.3, 0.2, 0.9, 0.7):
            box = [int(height * top), int(width * left), max(int(height * bottom) - int(height * top), 1),
                   max(int(width * right) - int(width * left), 1)]
            for size in (7, 7), (32, 20), (224, 224):
                result = F.resized_crop(image(height, width), *box, size)
                print(height, width, *box, *size, fnv1a(result.tobytes()), sep="\t", file=out)
