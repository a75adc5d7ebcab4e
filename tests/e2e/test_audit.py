"""`trainer data audit`: its findings about images that would damage the results. TRAINER_BINARY is the program."""

import functools
import html.parser
import json
import math
import os
import pathlib
import random
import shutil
import signal
import struct
import sys
import time
import unittest
import zlib

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "testing"))
from program import LINEAR, FolderCase, start, trainer  # noqa: E402

EXPERIMENT = """experiment: audited
model: {name: resnet20}
dataset: {name: image_folder, root: data}
optimizer: {name: sgd, lr: 0.05}
training: {epochs: 1}
"""


def png(width, height, value_at, bits=8, channels=1):
    """`channels`: 1, or 3 equal ones. `value_at` maps a position, from 0 to 1 in both directions, to a pixel value."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    row_of = struct.Struct(f">{width * channels}{'B' if bits == 8 else 'H'}")
    rows = [b"\0" + row_of.pack(*(value_at((y + 0.5) / height, (x + 0.5) / width) for x in range(width) for _ in range(channels))) for y in range(height)]
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 0 if channels == 1 else 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b"")


@functools.cache
def scene(number, width=56, height=56, brightness=1.0):
    """An image that looks nearly the same at any size."""
    numbers = random.Random(number)
    waves = [[numbers.uniform(-35, 35), numbers.uniform(-35, 35), numbers.uniform(0, 6), numbers.uniform(5, 25)] for _ in range(8)]
    def value_at(y, x):
        value = 115 + sum(height * math.sin(down * y + right * x + phase) for down, right, phase, height in waves)
        return min(255, max(0, round(brightness * value)))
    return png(width, height, value_at)


class Page(html.parser.HTMLParser):
    """The text of a page, and the sources of its images."""
    def __init__(self, text):
        super().__init__()
        self.text, self.images, self.tags = "", [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag == "img":
            self.images.append(dict(attributes)["src"])

    def handle_data(self, data):
        self.text += data


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class AuditTest(FolderCase):
    def setUp(self):
        super().setUp()
        (self.folder / "x.yaml").write_text(EXPERIMENT)
        for kind, first in (("cat", 0), ("dog", 100)):
            for i in range(6):
                self.add(f"{'train' if i < 4 else 'val'}/{kind}/{i}.png", scene(first + i))

    def add(self, name, content):
        path = self.folder / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def audit(self, *arguments, code=0):
        run = trainer("data", "audit", "--config", "x.yaml", *arguments, cwd=self.folder)
        self.assertEqual(run.returncode, code, run.out + run.err)
        return run

    def findings(self, *arguments, code=0):
        return json.loads(self.audit("--json", *arguments, code=code).out)

    def names(self, findings):
        return [(one["name"].removeprefix("data/"), one["same_as"]["name"].removeprefix("data/")) if "same_as" in one else one["name"].removeprefix("data/")
                for one in findings]

    def test_a_set_without_damage(self):
        run = self.audit()
        self.assertTrue(run.out.startswith("12 images: 8 for training, 4 for validation\n\ndamages results\n  images that are also in another part: none\n"), run.out)
        self.assertTrue(run.out.endswith("\nnothing was found that damages results\n"), run.out)
        found = self.findings()
        self.assertEqual((found["images"], found["damages_results"]), ({"training": 8, "validation": 4}, False))
        self.assertTrue(all(value == [] for key, value in found.items() if key not in ("images", "damages_results")), found)

    def test_leaks_between_training_and_validation(self):
        self.add("val/cat/copy.png", scene(1))
        self.add("val/dog/larger.png", scene(102, width=61, height=57, brightness=1.1))
        run = self.audit(code=3)
        self.assertIn("  images that are also in another part: 2 (1 with the same pixels)\n"
                      "    (they make validation or test results too good; remove them from one part, or keep copies together (dataset.split.group))\n"
                      "    validation sample 2, data/val/cat/copy.png (cat)\n      matches training sample 1, data/train/cat/1.png (cat), the same pixels\n"
                      "    validation sample 5, data/val/dog/larger.png (dog)\n      matches training sample 6, data/train/dog/2.png (dog), similarity 0.9", run.out)
        self.assertTrue(run.out.endswith("\nthis data set has problems that damage results; --json lists all findings, and --page shows the images\n"), run.out)
        found = self.findings(code=3)
        self.assertEqual(self.names(found["leaks"]), [("val/cat/copy.png", "train/cat/1.png"), ("val/dog/larger.png", "train/dog/2.png")])
        self.assertEqual([(one["same_pixels"], one["part"], one["same_as"]["part"]) for one in found["leaks"]],
                         [(True, "validation", "training"), (False, "validation", "training")])
        self.assertEqual(found["leaks"][0], {"part": "validation", "index": 2, "name": "data/val/cat/copy.png", "class": "cat",
                                             "same_as": {"part": "training", "index": 1, "name": "data/train/cat/1.png", "class": "cat"},
                                             "same_pixels": True, "similarity": 1.0, "height": 56, "width": 56})
        self.assertTrue(found["damages_results"])

    def test_two_labels(self):
        self.add("train/dog/same.png", scene(2))
        self.add("train/dog/darker.png", scene(3, width=70, height=70, brightness=0.9))
        found = self.findings(code=3)
        pairs = [("train/dog/same.png", "train/cat/2.png"), ("train/dog/darker.png", "train/cat/3.png")]
        self.assertEqual((self.names(found["label_conflicts"]), self.names(found["duplicates"]), found["leaks"]), (pairs, pairs, []))
        self.assertIn("  images that also occur with another label: 2 (1 with the same pixels)\n    (correct the wrong target, or remove both images)\n", self.audit(code=3).out)

    def test_copies_in_one_part_are_a_note(self):
        for i in range(5):
            self.add(f"train/cat/again{i}.png", scene(1))
        self.assertIn("  images that occur twice in the same part: 5 (5 with the same pixels)\n    (they have more weight than others)\n"
                      "    training sample 4, data/train/cat/again0.png (cat)\n      matches training sample 1, data/train/cat/1.png (cat), the same pixels\n", self.audit().out)
        self.assertIn("    and 2 more\n", self.audit().out)
        self.assertEqual(len(self.findings()["duplicates"]), 5)

    def test_a_copy_of_a_copy_leaks_too(self):
        self.add("val/cat/larger.png", scene(1, width=60, height=60))
        self.add("val/dog/larger.png", scene(1, width=60, height=60))
        found = self.findings(code=3)
        self.assertEqual(sorted(self.names(found["leaks"])), [(f"val/{kind}/larger.png", "train/cat/1.png") for kind in ("cat", "dog")])
        self.assertEqual(self.names(found["label_conflicts"]), [("val/dog/larger.png", "val/cat/larger.png")])

    def test_classes_of_one_part(self):
        shutil.rmtree(self.folder / "data/val/dog")
        self.assertIn("  classes with only training images: 1\n    (no validation or test result covers them; add validation images of these classes)\n    dog: 4 training, 0 validation\n", self.audit().out)
        for file in (self.folder / "data/train/dog").iterdir():
            file.write_bytes(b"nothing")
        self.add("val/dog/1.png", scene(150))
        run = self.audit(code=3)
        self.assertIn("  classes without training images: 1\n    (no network can learn them; add training images, or remove the class)\n    dog: 0 training, 1 validation\n", run.out)
        self.assertEqual(self.findings(code=3)["classes_without_training"], [{"class": "dog", "images": {"training": 0, "validation": 1}}])

    def test_what_cannot_be_read(self):
        self.add("train/dog/bad.png", scene(1)[:100])
        self.assertIn("  images that cannot be read: 1\n    (repair or remove them, or skip them in training with dataset.on_error: skip)\n"
                      "    training sample 8, data/train/dog/bad.png: the file ends too early\n", self.audit(code=3).out)
        self.assertEqual(self.findings(code=3)["unreadable"], [{"part": "training", "index": 8, "name": "data/train/dog/bad.png", "reason": "the file ends too early"}])

    def test_unusual_images_are_notes(self):
        self.add("train/cat/large.png", scene(20, width=170, height=40))
        self.add("train/cat/plain.png", png(56, 56, lambda y, x: 77))
        self.add("train/dog/bits.png", png(56, 56, lambda y, x: round(900 * y + 9000 * x), bits=16, channels=3))
        exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
        jpeg = (TESTS / "golden/jpegs/444.jpg").read_bytes()
        self.add("train/dog/turned.jpg", jpeg[:2] + struct.pack(">HH", 0xFFE1, len(exif) + 8) + b"Exif\0\0" + exif + jpeg[2:])
        found = self.findings()
        self.assertEqual([self.names(found[kind]) for kind in ("unusual_sizes", "constant", "turned", "bits_16")],
                         [["train/cat/large.png"], ["train/cat/plain.png"], ["train/dog/turned.jpg"], ["train/dog/bits.png"]])
        out = self.audit().out
        for text in ("images of an unusual size: 1\n    (height, width or width / height is over 3 times the median (56, 56 and 1.00) or under 1/3 of it)\n"
                     "    training sample 4, data/train/cat/large.png (cat): 40 x 170 pixels\n", "images of a single colour: 1\n",
                     "images with an EXIF orientation: 1\n    (they are turned upright, unlike in torchvision's ImageFolder)\n",
                     "images of which only 8 of 16 bits per channel are used: 1\n"):
            self.assertIn("  " + text, out)

    def test_images_of_16_bits(self):
        shutil.rmtree(self.folder / "data")

        def deep(number):
            content = random.Random(number)
            waves = [(content.uniform(-35, 35), content.uniform(-35, 35)) for _ in range(6)]
            return png(56, 56, lambda y, x: round(9000 + 500 * sum(math.sin(a * x + b * y) for a, b in waves)), bits=16)

        for i in range(8):
            self.add(f"train/{'cat' if i % 2 else 'dog'}/{i}.png", deep(i))
            self.add(f"val/{'cat' if i % 2 else 'dog'}/{i}.png", deep(100 + i))
        self.add("val/cat/copy.png", deep(3))
        self.add("val/dog/plain.png", png(56, 56, lambda y, x: 9000, bits=16))
        found = self.findings(code=3)
        self.assertEqual(self.names(found["leaks"]), [("val/cat/copy.png", "train/cat/3.png")])
        self.assertEqual(self.names(found["constant"]), ["val/dog/plain.png"])
        self.assertEqual((found["unreadable"], found["bits_16"]), ([], []))
        self.audit("--page", "page.html", code=3)
        self.assertEqual((self.folder / "page.html").read_text().count("cannot be shown"), 0)

    def test_the_part_for_a_test(self):
        shutil.rmtree(self.folder / "data")
        for i in range(60):
            self.add(f"{'cat' if i % 2 else 'dog'}/{i}.png", scene(i))
        split = "dataset.split={validation: 0.2, test: 0.3}"
        found = self.findings(split)
        self.assertEqual((sum(found["images"].values()), list(found["images"])), (60, ["training", "validation", "test"]))
        for i in range(60):
            self.add(f"{'cat' if i % 2 else 'dog'}/{i}_copy.png", scene(i))
        found = self.findings(split, code=3)
        self.assertEqual({(one["part"], one["same_as"]["part"]) for one in found["leaks"]},
                         {("validation", "training"), ("test", "training"), ("test", "validation")})
        self.assertEqual(len(found["leaks"]) + len(found["duplicates"]), 60)
        self.assertEqual(self.findings('dataset.split={validation: 0.2, test: 0.3, group: "([0-9]+)"}')["leaks"], [])

    def test_numbers_as_targets(self):
        self.add("train/cat/copy.png", scene(1))
        self.add("train/cat/larger.png", scene(2, width=60, height=60))
        (self.folder / "list.csv").write_text("path,age\n" + "".join(f"train/cat/{name}.png,{number}\n" for name, number in (("1", 3), ("copy", 4), ("2", 5), ("larger", 6))))
        data = ["dataset={name: csv, train: list.csv, root: data, targets: numbers}", "validation.every_epochs=null", "loss.name=mse"]
        self.assertEqual(self.names(self.findings(*data, code=3)["label_conflicts"]), [("train/cat/copy.png", "train/cat/1.png")])
        self.assertIn("images that also occur with other numbers: 1 (1 with the same pixels)\n", self.audit(*data, code=3).out)

    def test_the_page(self):
        self.add("val/cat/<script>&.png", scene(1))
        self.add("train/dog/bad.png", b"")
        for i in range(70):
            self.add(f"train/cat/again{i}.png", scene(1))
        run = self.audit("--page", "page.html", code=3)
        self.assertTrue(run.out.endswith("page.html: the images side by side; open it in a browser\n"), run.out)
        text = (self.folder / "page.html").read_text()
        page = Page(text)
        self.assertNotIn("script", page.tags)
        self.assertIn("data/val/cat/<script>&.png", page.text)
        self.assertIn("The first 60 of 70 are shown; trainer data audit --json lists all.", page.text)
        self.assertIn("training sample 78, data/train/dog/bad.png: cannot be read: the file is empty", page.text)
        self.assertEqual(len(page.images), 2 + 120)
        self.assertTrue(all(image.startswith("data:image/jpeg;base64,") for image in page.images))
        self.assertNotRegex(text, r"(src|href)=\"(?!data:)")
        self.assertEqual(json.loads(self.audit("--json", "--page", "page2.html", code=3).out)["images"], {"training": 79, "validation": 5})
        self.assertEqual((self.folder / "page2.html").read_text(), text)

    def test_pages_that_are_refused(self):
        for page, message in (("x.yaml", "--page x.yaml: this is the file x.yaml, which would be overwritten"),
                              ("data/train/cat/1.png", "--page data/train/cat/1.png: this is the file data/train/cat/1.png, which would be overwritten"),
                              ("nowhere/page.html", "nowhere"), (".", "it is a folder"),
                              ("/dev/stdout", "--page: the findings are printed to the standard output; name a file")):
            with self.subTest(page):
                run = trainer("data", "audit", "--config", "x.yaml", "--page", page, cwd=self.folder)
                self.assertIn(run.returncode, (1, 2), run.err)
                self.assertIn(message, run.err)
                self.assertEqual(run.out, "")
        self.assertEqual(self.findings()["unreadable"], [])

    def test_sets_without_images(self):
        run = trainer("data", "audit", "--config", LINEAR)
        self.assertEqual((run.returncode, "dataset.name: synthetic has no images to audit" in run.err), (2, True), run.err)

    def test_a_request_to_stop(self):
        self.add("large.png", png(512, 512, lambda y, x: round(200 * x)))
        (self.folder / "list.csv").write_text("large.png,0\n" * 100_000)
        process = start("data", "audit", "--config", "x.yaml", "--page", "page.html", "dataset={name: csv, train: list.csv, root: data}",
                        "validation.every_epochs=null", cwd=self.folder)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (75, ""), err)
        self.assertIn("stopped on request before all samples were read", err)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"x.yaml", "data", "list.csv"})

    def test_the_help(self):
        self.assertIn("The exit code is 3 if there are any.", " ".join(trainer("data", "audit", "--help").out.split()))


if __name__ == "__main__":
    unittest.main()
