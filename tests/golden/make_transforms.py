"""Writes transforms.txt: checksums of two images transformed by torchvision, for tests/unit/data/image_write_test.cpp.

Each line: image, padding mode, padding, crop's top, left and size, flipped, FNV-1a (64 bits) of the normalised float32 image's bytes.
"""

import pathlib

import numpy
import torchvision.transforms.functional as F
from PIL import Image
from checksum import fnv1a

MEAN = [0.4914, 0.4822, 0.4465]
STD = [0.2470, 0.2435, 0.2616]
SIZE = 16


def image(number):
    """Each channel has every pixel value once; the orders differ."""
    pixels = numpy.arange(SIZE * SIZE)
    channels = [(pixels * (37 + 2 * number) + 101 * c) % 256 for c in range(3)]
    return Image.fromarray(numpy.stack(channels, -1).reshape(SIZE, SIZE, 3).astype(numpy.uint8))


def cases():
    yield "zero", 0, 0, 0, 16
    yield "zero", 0, 3, 5, 8
    for mode in "zero", "reflect":
        for top, left in (0, 0), (4, 4), (8, 8), (0, 8), (7, 1), (2, 6):
            yield mode, 4, top, left, 16
        yield mode, 15, 0, 0, 46
        yield mode, 4, 1, 20, 3


with open(pathlib.Path(__file__).with_name("transforms.txt"), "w") as out:
    for number in range(2):
        for mode, padding, top, left, size in cases():
            for flip in False, True:
                x = F.pad(image(number), padding, padding_mode="constant" if mode == "zero" else mode)
                x = F.crop(x, top, left, size, size)
                x = F.normalize(F.to_tensor(F.hflip(x) if flip else x), MEAN, STD)
                print(number, mode, padding, top, left, size, int(flip), fnv1a(x.numpy().tobytes()), file=out)
