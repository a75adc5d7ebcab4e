#!/usr/bin/env python3
"""Compares the memory that `trainer validate` estimates with the peak of short trainings of the shipped experiments, on 1 and 2 ranks.

usage: bench/memory.py [--bin FOLDER] [--ranks 1,2] [--steps 2] [CONFIG ...]
Data sets that the repository lacks are replaced by files of the same formats with random pixels: CIFAR and MNIST with the real number of
training images, the others with 600 or 800; all with 64 validation images. Prints a row of a Markdown table for each training: the largest
peak of the resident sets of its processes, the estimate for rank 0, and their ratio.
"""

import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
VALIDATION = 64


def write_cifar(folder, names, count, label_bytes):
    folder.mkdir(parents=True)
    for name in names:
        with open(folder / name, "wb") as file:
            for _ in range(count):
                file.write(bytes(label_bytes) + os.urandom(3072))


def write_mnist(folder):
    folder.mkdir(parents=True)
    for name, count in (("train", 60000), ("t10k", VALIDATION)):
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 28, 28) + os.urandom(count * 784))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + bytes(count))


def write_image(file, size):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"P6\n%d %d\n255\n" % (size, size) + os.urandom(3 * size * size))


def write_image_folder(folder, count):
    for split, images in (("train", count), ("val", VALIDATION)):
        for index in range(images):
            write_image(folder / split / str(index % 10) / f"{index}.ppm", 256)


def write_tiny_imagenet(folder, count):
    ids = [f"n{number:03}" for number in range(200)]
    for index in range(count):
        write_image(folder / "train" / ids[index % 200] / "images" / f"{index}.ppm", 64)
    for index in range(VALIDATION):
        write_image(folder / "val/images" / f"{index}.ppm", 64)
    (folder / "wnids.txt").write_text("\n".join(ids) + "\n")
    (folder / "val/val_annotations.txt").write_text("".join(f"{index}.ppm\t{ids[index]}\n" for index in range(VALIDATION)))


def write_data(root):
    write_cifar(root / "cifar-10-batches-bin", [f"data_batch_{number}.bin" for number in range(1, 6)], 10000, 1)
    with open(root / "cifar-10-batches-bin/test_batch.bin", "wb") as file:
        file.write(b"".join(b"\0" + os.urandom(3072) for _ in range(VALIDATION)))
    write_cifar(root / "cifar-100-binary", ["train.bin"], 50000, 2)
    with open(root / "cifar-100-binary/test.bin", "wb") as file:
        file.write(b"".join(b"\0\0" + os.urandom(3072) for _ in range(VALIDATION)))
    write_mnist(root / "MNIST/raw")
    write_image_folder(root / "imagefolder", 600)
    write_tiny_imagenet(root / "tiny-imagenet-200", 800)


def overrides_of(config, root, steps):
    overrides = ["training.epochs=null", f"training.steps={steps}", "lr_scheduler={name: constant}"]
    if config.stem == "imagefolder":
        overrides.append(f"dataset.root={root / 'imagefolder'}")
    elif config.stem not in ("quickstart", "demo_conv", "demo_linear"):
        overrides.append(f"dataset.root={root}")
    return overrides


def measure(trainer, config, overrides, ranks, folder):
    """The estimate for rank 0 and the peak of the training's processes, in bytes."""
    arguments = ["--config", config, *overrides]
    validate = subprocess.run([trainer, "validate", *arguments, "--world-size", str(ranks), "--json"], cwd=ROOT, capture_output=True, check=True)
    launch = [trainer, "launch", "--nproc-per-node", str(ranks), *arguments, "--run-dir", folder]
    process = subprocess.Popen(launch, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    output = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{config.stem} on {ranks} ranks failed:\n{output}")
    return json.loads(validate.stdout)["memory"], usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=pathlib.Path, metavar="CONFIG")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of our programs")
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--steps", type=int, default=2)
    arguments = parser.parse_args()
    configs = arguments.configs or sorted((ROOT / "configs").glob("*.yaml"))
    with tempfile.TemporaryDirectory(prefix="trainer-memory-") as folder:
        root = pathlib.Path(folder)
        write_data(root)
        print("| experiment | ranks | measured peak | estimate | estimate / measured |\n|---|---|---|---|---|")
        for config in map(pathlib.Path.resolve, configs):
            for ranks in map(int, arguments.ranks.split(",")):
                memory, peak = measure(arguments.bin / "trainer", config, overrides_of(config, root, arguments.steps), ranks, root / f"{config.stem}_{ranks}")
                total = memory["total_bytes"]
                print(f"| {config.stem} | {ranks} | {peak / 2**20:.0f} MiB | {total / 2**20:.0f} MiB | {total / peak:.2f} |", flush=True)
                print(memory["bytes"], file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
