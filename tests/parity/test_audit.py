"""What share of the copies among generated images `trainer data audit` finds, and how many other images it reports. TRAINER_BINARY is the
program."""

import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

SIDE = 128
NUM_SCENES, NUM_TEXTURES, NUM_PARTS = 2000, 400, 600
NUM_PLANTED = 100  # number of copies of each kind


def scene(random):
    """Shapes of random colours on a gradient."""
    def colour():
        return tuple(int(value) for value in random.integers(0, 256, 3))

    corners = Image.fromarray(random.integers(0, 256, (2, 2, 3), dtype=np.uint8))
    image = corners.resize((SIDE, SIDE), Image.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(random.integers(4, 14)):
        x, y, width, height = (int(value) for value in random.integers(8, SIDE, 4))
        box = (x - width // 3, y - height // 3, x + width // 3, y + height // 3)
        shape = (draw.ellipse, draw.rectangle, draw.arc, draw.chord)[random.integers(4)]
        shape(box, 0, 250, fill=colour()) if shape in (draw.arc, draw.chord) else shape(box, fill=colour())
    grain = random.normal(0, random.uniform(1, 12), (SIDE, SIDE, 1))
    return Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(random.uniform(0, 1.2)))


def texture(random):
    """Textures that look alike, such as different images of one fabric."""
    waves = random.normal(0, 1, (SIDE // 8, SIDE // 4))
    grey = np.asarray(Image.fromarray(waves.astype(np.float32)).resize((SIDE, SIDE), Image.BICUBIC)) * 35 + 120
    return Image.fromarray(np.stack([grey, grey * 0.9, grey * 0.8], 2).clip(0, 255).astype(np.uint8))


def part_of_machine(random, fixture):
    """Images of the same scene from nearly the same place, with small differences."""
    left, top = random.integers(6, 11, 2)
    image = np.asarray(fixture.crop((left, top, left + SIDE, top + SIDE)), np.float32) * random.normal(1, 0.03)
    marks = np.asarray(Image.fromarray(random.normal(0, 1, (SIDE // 5, SIDE // 10)).astype(np.float32)).resize((SIDE, SIDE), Image.BICUBIC))
    return Image.fromarray((image + 7 * marks[..., None] + random.normal(0, 3, (SIDE, SIDE, 1))).clip(0, 255).astype(np.uint8))


def as_jpeg(image, quality):
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


def changed(image, random):
    """The image resized; resized and then brighter or darker; or cropped a little and resized."""
    width, height = (int(random.integers(70, 240)) for _ in range(2))
    kind = random.integers(3)
    if kind == 0:
        return image.resize((width, height), Image.LANCZOS)
    if kind == 1:
        return ImageEnhance.Brightness(image.resize((width, width), Image.BILINEAR)).enhance(random.uniform(0.85, 1.15))
    left, top, right, bottom = (random.uniform(0, 0.05, 4) * SIDE).astype(int)
    return image.crop((left, top, SIDE - right, SIDE - bottom)).resize((width, width), Image.BICUBIC)


def stem(image):
    return pathlib.Path(image["name"]).stem


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class AuditTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-audit-")
        cls.addClassCleanup(folder.cleanup)
        folder = pathlib.Path(folder.name)
        random = np.random.default_rng(0)
        fixture = scene(random).resize((SIDE + 16, SIDE + 16), Image.BICUBIC)
        images = [scene(random) for _ in range(NUM_SCENES)] + [texture(random) for _ in range(NUM_TEXTURES)]
        images += [part_of_machine(random, fixture) for _ in range(NUM_PARTS)]
        order = random.permutation(len(images))
        for part in ("train", "val"):
            (folder / "data" / part / "all").mkdir(parents=True)
        # Every tenth image is for validation. Copies of some training images are added there: of all kinds only saved again, of scenes
        # and textures also with changes.
        for position, i in enumerate(order):
            images[i].save(folder / "data" / ("val" if position % 10 == 0 else "train") / "all" / f"{i}.png", compress_level=1)
        training = [int(i) for position, i in enumerate(order) if position % 10 != 0]
        of_any, varied = training[:2 * NUM_PLANTED], [i for i in training[2 * NUM_PLANTED:] if i < NUM_SCENES + NUM_TEXTURES][:NUM_PLANTED]
        for i in of_any[:NUM_PLANTED]:
            images[i].save(folder / "data/val/all" / f"{i}_exact.bmp")
        for i in of_any[NUM_PLANTED:]:
            as_jpeg(images[i], int(random.integers(40, 80))).convert("RGB").save(folder / "data/val/all" / f"{i}_jpeg.png", compress_level=1)
        for i in varied:
            changed(images[i], random).save(folder / "data/val/all" / f"{i}_changed.jpg", quality=85)
        cls.planted = {f"{i}_exact" for i in of_any[:NUM_PLANTED]} | {f"{i}_jpeg" for i in of_any[NUM_PLANTED:]} | {f"{i}_changed" for i in varied}
        config = folder / "x.yaml"
        config.write_text(f"experiment: x\nmodel: {{name: resnet20, num_classes: 1}}\ndataset: {{name: image_folder, root: {folder}/data}}\n"
                          "optimizer: {name: sgd, lr: 0.1}\ntraining: {epochs: 1}\n")
        run = subprocess.run([os.environ["TRAINER_BINARY"], "data", "audit", "--config", config, "--json"], capture_output=True, text=True)
        assert run.returncode == 3, run.stderr
        cls.found = json.loads(run.stdout)

    def share_found(self, kind, same_pixels):
        """The fraction of the planted copies of this kind that is found together with the original."""
        planted = {name for name in self.planted if name.endswith(kind)}
        self.assertEqual(len(planted), NUM_PLANTED)
        found = {(stem(one), stem(one["same_as"])) for one in self.found["leaks"] if one["same_pixels"] == same_pixels}
        return sum((name, name.split("_")[0]) in found for name in planted) / NUM_PLANTED

    def test_copies_with_the_same_pixels_are_all_found_and_nothing_else(self):
        self.assertEqual(self.share_found("exact", True), 1)
        self.assertEqual(sum(one["same_pixels"] for one in self.found["leaks"]), NUM_PLANTED)

    def test_copies_that_were_saved_again_are_found(self):
        self.assertGreaterEqual(self.share_found("jpeg", False), 0.99)

    def test_copies_that_were_resized_brightened_or_cropped_are_found(self):
        self.assertGreaterEqual(self.share_found("changed", False), 0.95)

    def test_pictures_that_are_only_alike_are_not_found(self):
        near = [one for one in self.found["leaks"] if not one["same_pixels"]]
        wrong = [one for one in near if stem(one).split("_")[0] != stem(one["same_as"])]
        self.assertLessEqual(len(wrong) / len(near), 0.01)
        self.assertLessEqual(len(self.found["duplicates"]), 2)


if __name__ == "__main__":
    unittest.main()
