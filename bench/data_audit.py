#!/usr/bin/env python3
"""Measures time and memory of `trainer data audit` on many JPEG files, some of which show the same scene. Needs Pillow and NumPy."""

import argparse
import contextlib
import json
import multiprocessing
import pathlib
import re
import subprocess
import tempfile
import time

import numpy as np
from PIL import Image, ImageDraw

from harness import ROOT, peak_memory_mb

SIDE = 224
NUM_FIXTURES = 3  # scenes of which there are many images


def draw(random):
    image = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((SIDE, SIDE), Image.BICUBIC)
    shapes = ImageDraw.Draw(image)
    for _ in range(8):
        x, y, size = (int(value) for value in random.integers(10, SIDE, 3))
        shapes.ellipse((x - size // 4, y - size // 4, x + size // 4, y + size // 4), fill=tuple(int(value) for value in random.integers(0, 256, 3)))
    return image


def write(job):
    folder, i, is_alike = job
    random = np.random.default_rng(i)
    if is_alike:
        fixture = np.asarray(draw(np.random.default_rng(10**9 + i % NUM_FIXTURES)), np.float32)
        marks = Image.fromarray(random.normal(0, 8, (30, 20)).astype(np.float32)).resize((SIDE, SIDE), Image.BICUBIC)
        image = Image.fromarray((fixture * random.normal(1, 0.03) + np.asarray(marks)[..., None]).clip(0, 255).astype(np.uint8))
    else:
        image = draw(random)
    part = folder / ("val" if i % 10 == 0 else "train") / f"{i // 10 % 10}"
    image.save(part / f"{i}.jpg", quality=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin", help="folder of our programs")
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--alike", type=float, default=0.3, help="fraction of images that show the same scenes (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainer-audit-") as folder:
        folder = pathlib.Path(folder)
        for part in ("train", "val"):
            for name in range(10):
                (folder / part / str(name)).mkdir(parents=True)
        with multiprocessing.Pool() as pool:
            for _ in pool.imap_unordered(write, ((folder, i, i // 100 % 100 < 100 * options.alike) for i in range(options.images)), 100):
                pass
        config = folder / "x.yaml"
        config.write_text(f"experiment: x\nmodel: {{name: resnet20}}\ndataset: {{name: image_folder, root: {folder}}}\noptimizer: {{name: sgd, lr: 0.1}}\ntraining: {{epochs: 1}}\n")
        began = time.perf_counter()
        with open(folder / "found.json", "w") as found, open(folder / "log", "w") as log:
            process = subprocess.Popen([options.bin / "trainer", "data", "audit", "--config", config, "--json"], stdout=found, stderr=log)
            peak = 0
            while process.poll() is None:
                with contextlib.suppress(StopIteration):  # the process has just ended
                    peak = max(peak, peak_memory_mb(process.pid))
                time.sleep(0.1)
        seconds = time.perf_counter() - began
        log = (folder / "log").read_text()
        compared = re.search(r"compared in ([0-9.]+)s", log)
        if process.returncode not in (0, 3) or not compared:
            raise SystemExit(log)
        counts = {key: len(value) for key, value in json.loads((folder / "found.json").read_text()).items() if isinstance(value, list) and value}
        print(f"{options.images} images: {seconds:.1f} s, {compared[1]} s of them after decoding; peak memory {peak:.0f} MB; found {counts}")


if __name__ == "__main__":
    main()
