"""Packed data sets: `trainer data pack`, and training on its output. TRAINER_BINARY is the program; TRAINER_OPENCV is 0 if it was built
without OpenCV."""

import fcntl
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import termios
import time
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
import terminal  # noqa: E402
from lmdb_entries import read_entries  # noqa: E402
from program import BINARY, ROOT, FolderCase, trainer  # noqa: E402
from test_image_folder import QUICKSTART, RECORD, SAMPLE, metrics, png, sample_records, write_class_folders, write_images  # noqa: E402
from troubleshooting import plants  # noqa: E402

HEADER = 16
# Images that are so large that their pixels are committed in several parts.
LARGE = 700
NUM_LARGE = 30
PIPE_BYTES = 4096


def bytes_in(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class LmdbTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        self.packed = self.folder / "packed"

    def config(self):
        config = self.folder / "images.yaml"
        config.write_text("\n".join(["experiment: images", "model: {name: resnet18}", f"dataset: {{name: image_folder, root: {self.data}}}",
                                     "dataloader: {batch_size: 8, drop_last: false}", "training: {epochs: 2}", "optimizer: {name: sgd, lr: 0.01}",
                                     "logging: {every_steps: 1}", "runtime: {device: cpu, threads: 1}"]) + "\n")
        return config

    def pack_command(self, *args):
        return ["data", "pack", "--config", self.config(), "--output", self.packed, *args]

    def pack(self, *args):
        return self.ran(*self.pack_command(*args))

    def refuse(self, code, message, *args):
        run = trainer(*self.pack_command(*args))
        self.assertEqual((run.returncode, run.err.splitlines()[-1]), (code, f"error: {message}"), run.err)

    def metrics_of(self, name, *args):
        run_dir = self.folder / name
        self.ran("--config", self.config(), "--run-dir", run_dir, "model.name=resnet20", *args)
        found = metrics(run_dir)
        self.assertGreater(len(found), 3)
        return found

    def samples(self, split="train"):
        """The headers and contents of a split's samples."""
        entries = {key: value for key, value in read_entries(self.packed / split).items() if not key.startswith(b"#")}
        self.assertEqual(list(entries), [b"%08d" % i for i in range(len(entries))])
        return [(value[:HEADER], value[HEADER:]) for value in entries.values()]

    def test_training_gives_the_bits_of_the_source(self):
        # A tenth is held out for validation.
        write_class_folders(self.data, sample_records(["data_batch_1.bin"], 40))
        transforms = "dataset.train_transforms=[{random_resized_crop: {size: 32}}, random_horizontal_flip]"
        validation = "dataset.validation_transforms=[center_crop: {size: 32}]"
        expected = self.metrics_of("folder", transforms, validation, "dataloader.num_workers=1")
        packed = f"dataset={{name: lmdb, root: {self.packed}}}"
        run = self.pack("--threads", "3")
        self.assertRegex(run.out, rf"^{self.packed}: 40 samples, [\d.]+ KiB, checksums compared\n$")
        for num_workers in (0, 4):
            self.assertEqual(self.metrics_of(f"packed_{num_workers}", packed, transforms, validation, f"dataloader.num_workers={num_workers}"), expected)
        self.packed = self.folder / "raw"
        self.pack("--raw")
        packed = f"dataset={{name: lmdb, root: {self.packed}}}"
        self.assertEqual(self.metrics_of("raw_1", packed, transforms, validation, "dataloader.num_workers=1"), expected)

    def test_an_experiment_without_transforms_has_those_of_the_source(self):
        write_images(self.data / "train", ("cat", "dog"), 2)
        write_images(self.data / "val", ("cat", "dog"), 1)
        self.pack()
        show = ["config", "show", "--config", self.config()]
        ours, theirs = trainer(*show, f"dataset={{name: lmdb, root: {self.packed}}}").out, trainer(*show).out
        self.assertIn("random_resized_crop: {size: 224", ours)
        keys_of_files = "  mode: auto\n  exif_orientation: apply\n"
        self.assertEqual(ours.replace("name: lmdb", "name: image_folder").replace(str(self.packed), str(self.data)), theirs.replace(keys_of_files, ""))
        run = trainer("data", "check", "--config", self.config(), f"dataset={{name: lmdb, root: {self.packed}}}")
        self.assertEqual((run.returncode, run.out), (0, "6 samples read, all good\n"), run.err)

    def test_data_sets_of_pixels_are_stored_as_they_are(self):
        self.ran("data", "pack", "--config", QUICKSTART, "--output", self.packed)
        records = (SAMPLE / "test_batch.bin").read_bytes()
        samples = self.samples("val")
        self.assertEqual([content for _, content in samples], [records[i + 1:i + RECORD] for i in range(0, len(records), RECORD)])
        labels = read_entries(self.packed / "val")[b"#labels"]
        self.assertEqual(labels[::8], records[::RECORD])

    def read_as_documented(self):
        """Runs the example of docs/packed_data.md; returns its variables."""
        text = (ROOT / "docs" / "packed_data.md").read_text()
        code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1].replace("DIR", str(self.packed))

        class Entries(dict):
            begin = __enter__ = lambda self: self
            __exit__ = lambda self, *error: None

        module = types.SimpleNamespace(open=lambda path, readonly, lock: Entries(read_entries(path)))
        variables = {}
        sys.modules["lmdb"] = module
        try:
            exec(code, variables)
        finally:
            del sys.modules["lmdb"]
        return variables

    def test_other_programs_can_read_it(self):
        write_images(self.data, ("cat", "dog"), 10)
        path = self.data / "dog" / "00007.png"
        path.write_bytes(png(2, 3, b"red" * 6))
        self.pack()
        found = self.read_as_documented()
        self.assertEqual((found["label"], found["name"], found["kind"]), (1, str(path), 0))
        self.assertEqual(found["content"], path.read_bytes())
        self.assertEqual((found["info"]["num_samples"], found["info"]["class_names"]), (20, ["cat", "dog"]))
        self.packed = self.folder / "raw"
        self.pack("--raw")
        found = self.read_as_documented()
        self.assertEqual([found[name] for name in ("kind", "order", "channels", "height", "width", "content")], [1, 1, 3, 2, 3, b"red" * 6])

    def test_resized_images(self):
        write_images(self.data, ("cat", "dog"), 8)  # of 20 to 26 x 26 to 30 pixels
        small = self.data / "cat" / "00000.png"
        small.write_bytes(png(12, 40, bytes(range(48)) * 30))
        resize = ["dataset.train_transforms=[resize: {size: 16}, random_crop: {size: 32, padding: 8}]",
                  "dataset.validation_transforms=[resize: {size: 16}, center_crop: {size: 32}]"]
        expected = self.metrics_of("folder", *resize)
        self.pack("--raw", "--resize", "16")
        self.assertEqual(self.metrics_of("packed", f"dataset={{name: lmdb, root: {self.packed}}}", *resize), expected)
        sizes = [struct.unpack("<HII", header[6:]) for header, _ in self.samples()]
        self.assertEqual((sizes[0], sizes[1], sizes[2]), ((3, 12, 40), (3, 16, int(16 * 29 / 21)), (3, 16, int(16 * 28 / 22))))
        self.packed = self.folder / "files"
        self.pack("--resize", "16")
        contents = [content for _, content in self.samples()]
        self.assertEqual(contents[0], small.read_bytes())
        self.assertEqual({content[:3] for content in contents[1:]}, {b"\xff\xd8\xff"})
        # Packs the packed data set again, as pixels. Each image has one colour, so its first pixel is almost the colour of plain_png().
        source = f"dataset={{name: lmdb, root: {self.packed}}}"
        self.packed = self.folder / "files_raw"
        self.pack(source, "--raw")
        for i, (_, pixels) in enumerate(self.samples()[1:], 1):
            for value, expected in zip(pixels, (37 * i % 256, 101 * i % 256, 53 * i % 256)):
                self.assertAlmostEqual(value, expected, delta=4)

    def write_large_images(self):
        (self.data / "cat").mkdir(parents=True)
        for i in range(NUM_LARGE):
            (self.data / "cat" / f"{i:02}.png").write_bytes(png(LARGE, LARGE, bytes((i, 2 * i, 3 * i)) * LARGE**2))

    def start_blocked(self, lines, *args):
        """Starts packing with stderr in a pipe that has room only for these lines. The process blocks at the next line until the pipe is
        read."""
        reader, writer = os.pipe()
        room = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES) - len(lines)
        os.write(writer, b"\n" * room)
        process = subprocess.Popen([BINARY, *map(str, self.pack_command(*args))], stdout=subprocess.DEVNULL, stderr=writer)
        os.close(writer)
        pipe = open(reader)
        self.addCleanup(pipe.close)
        return process, pipe

    def wait_for(self, condition):
        until = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    @plants("The packing of a data set was interrupted")
    def test_a_killed_packing_continues(self, row):
        self.write_large_images()
        process, pipe = self.start_blocked(f"{self.data}: {NUM_LARGE} images in 1 class\n" + 5 * "training: packed 15 of 30 samples\n", "--raw")
        # With the twelfth sample, the pixels exceed what is kept in memory, so some of them have been committed before the process is
        # killed.
        self.wait_for(lambda: bytes_in(pipe) > PIPE_BYTES - 10)
        process.kill()
        process.wait()
        run = trainer("--config", self.config(), f"dataset={{name: lmdb, root: {self.packed}}}", "--run-dir", self.folder / "run")
        row.check(self, run.err, run.returncode)
        self.refuse(2, f"{self.packed}/train was begun with other samples or options; continue with the original settings, or remove that folder")
        run = self.pack("--raw")
        self.assertRegex(run.err, rf"training: continues after \d+ of {NUM_LARGE} samples")
        samples = self.samples()
        self.packed = self.folder / "other"
        self.pack("--raw", "--threads", "1")
        self.assertEqual(len(samples), NUM_LARGE)
        self.assertEqual(samples, self.samples())

    def test_a_stopped_packing_continues(self):
        self.write_large_images()
        process, pipe = self.start_blocked("")
        # Waits until the process writes its first line to stderr (write is 1 on x86-64) and so has installed its signal handlers.
        syscall = pathlib.Path(f"/proc/{process.pid}/syscall")
        self.wait_for(lambda: syscall.read_text().startswith("1 0x2 "))
        process.send_signal(signal.SIGINT)
        err = pipe.read().strip()
        self.assertEqual((process.wait(), err.splitlines()[-1]), (75, "error: stopped on request; the same command continues"), err)
        self.assertIn(f"training: continues after 1 of {NUM_LARGE} samples", self.pack().err)

    def test_samples_that_cannot_be_read(self):
        write_images(self.data, ("cat", "dog"), 8)
        path = self.data / "cat" / "00003.png"
        whole = path.read_bytes()
        path.write_bytes(b"")
        self.refuse(3, f"training sample 3, {path}: cannot be read: the file is empty; put a good file in its place and continue with the same "
                    "command, or set dataset.on_error=skip to pack the others (`trainer data check` lists all unreadable files)")
        path.write_bytes(whole)
        self.assertIn("training: continues after 3 of 16 samples", self.pack().err)
        self.assertEqual(self.samples()[3][1], whole)
        path.write_bytes(b"")
        self.packed = self.folder / "skipped"
        run = self.pack("dataset.on_error=skip")
        self.assertIn(f"skipped (dataset.on_error: skip): sample 3, {path}: cannot be read: the file is empty", run.err)
        crop = ["dataset.train_transforms=[center_crop: {size: 32}]", "dataset.validation_transforms=[center_crop: {size: 32}]"]
        skip = "dataset.on_error=skip"
        self.assertEqual(self.metrics_of("packed", f"dataset={{name: lmdb, root: {self.packed}, on_error: skip}}", *crop),
                         self.metrics_of("folder", *crop, skip))

    def test_damage_is_found(self):
        write_images(self.data, ("cat", "dog"), 8)
        self.pack("--raw")
        file = self.packed / "train" / "data.mdb"
        content = bytearray(file.read_bytes())
        position = content.index(self.samples()[5][1])
        content[position + 20] ^= 1
        file.write_bytes(content)
        # Simulates damage between the packing and the comparison of checksums.
        (self.packed / "unfinished").touch()
        self.refuse(3, f"training sample 5, {self.data}/cat/00005.png was stored incorrectly: it is damaged: its checksum is wrong; "
                    f"remove {self.packed} and pack again, on another disk if this repeats", "--raw")
        (self.packed / "unfinished").unlink()
        run = trainer("data", "check", "--config", self.config(), f"dataset={{name: lmdb, root: {self.packed}}}", "dataset.validation_split=0.1")
        self.assertEqual(run.returncode, 3, run.err)
        self.assertRegex(run.out, rf"(?m)^\w+ sample \d+, {self.data}/cat/00005.png: it is damaged: its checksum is wrong$")
        self.assertEqual(run.out.splitlines()[-1], "16 samples read, 1 cannot be used")

    def test_refusals(self):
        write_images(self.data, ("cat", "dog"), 8)
        self.refuse(2, "dataset.name: synthetic has no images to pack", "dataset={name: synthetic}")
        self.packed.mkdir()
        with open(self.packed / "unfinished", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.refuse(1, f"another process is packing into {self.packed}; wait for it, or name another folder")
        (self.packed / "unfinished").write_text("notes of somebody")
        self.refuse(2, f"--output: {self.packed}/unfinished was not written by this program, which marks unfinished data sets with a file of this name; name another folder")
        (self.packed / "unfinished").unlink()
        self.pack()
        self.refuse(2, f"--output {self.packed}: {self.packed}/train exists already; give another --output, or remove {self.packed}/train "
                    "if you no longer need it")
        (self.packed / "unfinished").touch()
        (self.packed / "val").mkdir()
        self.refuse(2, f"{self.packed}: this unfinished copy was begun with validation images, which image_folder does not have now; add them again, or "
                    "remove the folder")
        self.packed = self.data / "cat" / "00000.png"
        self.refuse(1, f"cannot create {self.packed}: Not a directory")

    def test_progress_on_a_terminal(self):
        write_images(self.data, ("cat", "dog"), 8)
        code, text = terminal.run([BINARY, *map(str, self.pack_command())])
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"\[=* *\]\x1b\[0m  training: packed \d+ of 16 samples")
        self.assertEqual(len(terminal.show(text, 80).lines()), 2, text)


if __name__ == "__main__":
    unittest.main()
