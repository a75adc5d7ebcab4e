#!/usr/bin/env python3
"""Creates datasets/cifar10_sample from the binary version of the full CIFAR-10 set.

usage: scripts/make_cifar10_sample.py FOLDER      (FOLDER holds data_batch_1.bin ... data_batch_5.bin and test_batch.bin)

The sample has the first 200 training and the first 50 test images of each class, in the order of the files, then shuffled with a fixed
seed. The same source gives the same bytes with any Python 3.
"""

import pathlib
import random
import sys

NUM_CLASSES = 10
RECORD_BYTES = 1 + 3 * 32 * 32
TRAIN_FILES = [f"data_batch_{i}.bin" for i in range(1, 6)]
TEST_FILES = ["test_batch.bin"]
TARGET = pathlib.Path(__file__).resolve().parent.parent / "datasets" / "cifar10_sample" / "cifar-10-batches-bin"


def read_records(folder, names):
    for name in names:
        content = (folder / name).read_bytes()
        if len(content) % RECORD_BYTES != 0:
            sys.exit(f"{folder / name}: {len(content)} bytes are not a whole number of {RECORD_BYTES}-byte records")
        if max(content[::RECORD_BYTES], default=0) >= NUM_CLASSES:
            sys.exit(f"{folder / name}: a label is not below {NUM_CLASSES}; is this CIFAR-10's binary version?")
        for start in range(0, len(content), RECORD_BYTES):
            yield content[start : start + RECORD_BYTES]


def first_of_each_class(records, count):
    chosen = []
    num_chosen = [0] * NUM_CLASSES
    for record in records:
        label = record[0]
        if num_chosen[label] < count:
            num_chosen[label] += 1
            chosen.append(record)
    if min(num_chosen) < count:
        sys.exit(f"fewer than {count} images in a class: {num_chosen}")
    return chosen


def shuffled(records, seed):
    # random() gives the same values in every version of Python; shuffle() is not guaranteed to.
    generator = random.Random(seed)
    return sorted(records, key=lambda record: generator.random())


def write_records(names, records):
    size = len(records) // len(names)
    for i, name in enumerate(names):
        (TARGET / name).write_bytes(b"".join(records[i * size : (i + 1) * size]))


def make_sample(source):
    TARGET.mkdir(parents=True, exist_ok=True)
    write_records(TRAIN_FILES, shuffled(first_of_each_class(read_records(source, TRAIN_FILES), 200), seed=0))
    write_records(TEST_FILES, shuffled(first_of_each_class(read_records(source, TEST_FILES), 50), seed=1))
    (TARGET / "batches.meta.txt").write_bytes((source / "batches.meta.txt").read_bytes())


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        make_sample(pathlib.Path(sys.argv[1]))
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
