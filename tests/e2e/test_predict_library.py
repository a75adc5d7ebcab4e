"""libtrainer_predict: its results equal those of `trainer predict` bit for bit, in C, in Python, and in C# where mono is installed. The
library is in the folder of TRAINER_BINARY; TRAINER_OPENCV is 0 if it was built without OpenCV."""

import concurrent.futures
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import unittest

from test_eval import CLASSES, IMAGES, ImageExperiment

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ["TRAINER_BINARY"]).with_name("libtrainer_predict.so")
# The same number of threads in each process.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": str(LIBRARY.parent)}
os.environ["OMP_NUM_THREADS"] = "1"
RGB, BGR, RGBA, BGRA, GREY = range(5)


class Image(ctypes.Structure):
    _fields_ = [("pixels", ctypes.c_char_p), ("height", ctypes.c_int32), ("width", ctypes.c_int32), ("stride", ctypes.c_int64), ("order", ctypes.c_int32)]


def pam(height, width, pixels):
    """An image file of these RGB bytes."""
    return f"P6 {width} {height} 255\n".encode() + pixels


class Library:
    def __init__(self):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.library.trainer_predict_open.restype = ctypes.c_void_p
        self.library.trainer_predict_class_name.restype = ctypes.c_char_p
        for name in ("num_classes", "num_features"):
            getattr(self.library, f"trainer_predict_{name}").restype = ctypes.c_int64

    def open(self, path, device=None, flags=0):
        """A predictor, or the text of the error."""
        error = ctypes.create_string_buffer(1000)
        opened = self.library.trainer_predict_open(str(path).encode(), device, flags, error, ctypes.c_size_t(1000))
        return Predictor(self.library, ctypes.c_void_p(opened)) if opened else error.value.decode()


class Predictor:
    def __init__(self, library, handle):
        self.library, self.handle = library, handle
        self.num_classes = library.trainer_predict_num_classes(handle)
        self.num_features = library.trainer_predict_num_features(handle)

    def call(self, name, *args, count=1, features=False):
        """Rows of probabilities, and of features if requested; or the text of the error."""
        probabilities, error = (ctypes.c_double * (count * self.num_classes))(), ctypes.create_string_buffer(1000)
        found = (ctypes.c_float * (count * self.num_features))() if features else None
        if getattr(self.library, f"trainer_predict_{name}")(self.handle, *args, probabilities, found, error, ctypes.c_size_t(1000)) != 0:
            return error.value.decode()
        rows = [list(probabilities[i * self.num_classes:(i + 1) * self.num_classes]) for i in range(count)]
        return (rows, list(found)) if features else rows

    def file(self, path, **options):
        return self.call("file", str(path).encode(), **options)

    def encoded(self, content):
        return self.call("encoded", content, ctypes.c_size_t(len(content)))

    def images(self, *images, **options):
        array = (Image * len(images))(*images)
        return self.call("images", array, ctypes.c_size_t(len(images)), count=max(len(images), 1), **options)


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "built without OpenCV")
class PredictLibraryTest(ImageExperiment):
    text = IMAGES.replace("{name: demo_conv}", "{name: resnet20}").replace("training: {epochs: 2}", "training: {epochs: 1, ema: {decay: 0.5}}")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.checkpoint = cls.folder / cls.checkpoint
        cls.files = sorted((cls.folder / "images" / "val").glob("*/*.png"))
        # Images of two sizes with more than one colour.
        for number, (height, width) in enumerate(((40, 61), (100, 33))):
            file = cls.folder / f"{number}.ppm"
            file.write_bytes(pam(height, width, bytes((7 * i + i * i // 5 + number) % 256 for i in range(height * width * 3))))
            cls.files.append(file)
        cls.library = Library()
        cls.predictor = cls.library.open(cls.checkpoint, b"cpu")
        cls.expected = cls.predicted()

    @classmethod
    def predicted(cls, *args):
        """Probabilities of all classes by `trainer predict`; one file at a time, because roundings depend on the size of a batch."""
        rows = []
        for file in cls.files:
            run = subprocess.run([os.environ["TRAINER_BINARY"], "predict", "--checkpoint", cls.checkpoint, "--json", *args, file], env=ENVIRONMENT,
                                 capture_output=True, text=True, check=True)
            classes = json.loads(run.stdout)["classes"]
            rows.append([entry["probability"] for entry in sorted(classes, key=lambda entry: entry["label"])])
        return rows

    def pixels(self, number, order=RGB, gap=0):
        """The pixels of the file `number` places before the last one, in this order of channels."""
        header, content = self.files[-1 - number].read_bytes().split(b"\n", 1)
        width, height = map(int, header.split()[1:3])
        rows = []
        for y in range(height):
            row = b""
            for x in range(width):
                red, green, blue = content[3 * (y * width + x):][:3]
                row += bytes({RGB: (red, green, blue), BGR: (blue, green, red), RGBA: (red, green, blue, 9), BGRA: (blue, green, red, 9)}[order])
            rows.append(row + bytes(gap))
        return Image(b"".join(rows), height, width, len(rows[0]) if gap else 0, order)

    def test_it_does_not_load_what_trains(self):
        needed = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
        for name in ("libtrainer.so", "libcurl", "liblmdb", "libarchive"):
            self.assertNotIn(name, needed)
        code = subprocess.run(["nm", "-C", LIBRARY], capture_output=True, text=True, check=True).stdout
        self.assertIn("trainer::inference::", code)
        for name in ("trainer::optim::Optimizer", "trainer::datasets::", "trainer::recipe::", "trainer::session::", "TrainMeter"):
            self.assertNotIn(name, code)
        symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
        functions = {line.split()[2].split("@")[0] for line in symbols.splitlines() if " T " in line}
        self.assertEqual(functions, {f"trainer_predict_{name}" for name in ("open", "close", "kind", "threshold", "num_classes", "class_name", "num_features", "input_size", "heatmap", "heatmap_encoded", "file",
                                                                            "encoded", "images", "decide")})

    def test_files_and_their_bytes(self):
        self.assertEqual(self.predictor.num_classes, 3)
        names = [self.library.library.trainer_predict_class_name(self.predictor.handle, ctypes.c_int64(label)) for label in range(-1, 4)]
        self.assertEqual(names, [None, *(name.encode() for name in CLASSES), None])
        self.assertEqual([self.predictor.file(file)[0] for file in self.files], self.expected)
        self.assertEqual([self.predictor.encoded(file.read_bytes())[0] for file in self.files], self.expected)

    def test_pixels_in_every_order(self):
        for order in (RGB, BGR, RGBA, BGRA):
            for gap in (0, 5):
                self.assertEqual(self.predictor.images(self.pixels(0, order, gap)), [self.expected[-1]])
                self.assertEqual(self.predictor.images(self.pixels(1, order, gap)), [self.expected[-2]])
        grey = bytes(range(200))
        colour = bytes(value for value in grey for _ in range(3))
        self.assertEqual(self.predictor.images(Image(grey, 10, 20, 0, GREY)), self.predictor.images(Image(colour, 10, 20, 0, RGB)))
        both = self.predictor.images(self.pixels(0), self.pixels(1))
        for row, expected in zip(both, (self.expected[-1], self.expected[-2])):
            for value, other in zip(row, expected):
                self.assertAlmostEqual(value, other, places=6)

    def test_features_and_averaged_parameters(self):
        rows, features = self.predictor.file(self.files[-1], features=True)
        self.assertEqual((rows, len(features)), ([self.expected[-1]], 64))
        self.trainer("predict", "--checkpoint", self.checkpoint, self.files[-1], "--embeddings", "features.npy", env=ENVIRONMENT)
        written = (self.folder / "features.npy").read_bytes()
        self.assertEqual(bytes((ctypes.c_float * 64)(*features)), written[-256:])
        averaged = self.library.open(self.checkpoint, b"cpu", 1)
        expected = self.predicted("--ema")
        self.assertNotEqual(expected, self.expected)
        self.assertEqual([averaged.file(file)[0] for file in self.files], expected)

    def test_several_threads(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda file: self.predictor.file(file)[0], self.files * 20))
        self.assertEqual(found, self.expected * 20)

    def test_the_folder_of_a_run(self):
        best = self.library.open(self.checkpoint.with_name("best.pt"), b"cpu").file(self.files[-1])
        self.assertEqual(self.library.open(self.checkpoint.parent.parent, b"cpu").file(self.files[-1]), best)
        self.assertEqual(self.library.open(self.folder / "images"), f"{self.folder}/images: this folder contains no checkpoint; give the folder of a run that has saved one, or a file")

    def test_a_forked_process(self):
        """Its OpenMP threads would not exist, so that it would wait for them for ever."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            for found in (self.predictor.file(self.files[-1]), self.library.open(self.checkpoint, b"cpu")):
                os.write(write, f"{found}\n".encode())
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        text = f"process {os.getpid()} has opened a predictor and then called fork(), and LibTorch cannot compute in the new process; open the first predictor after fork(), or start the process with exec()\n"
        self.assertEqual(os.read(read, 10000).decode(), text * 2)
        self.assertEqual(self.predictor.file(self.files[-1])[0], self.expected[-1])

    def test_errors(self):
        empty = self.folder / "empty.png"
        empty.write_bytes(b"")
        weights = self.folder / "weights.pt"
        self.printed("export", "--checkpoint", self.checkpoint, "--format", "state_dict", "--output", weights)
        for args, text in ((("none.pt",), "none.pt: there is no such file; check the path"), ((empty,), f"{empty}: "), ((self.checkpoint, b"tpu"), 'the device "tpu" is neither cpu nor cuda'),
                           ((weights,), f"{weights}: it holds weights but no experiment; give a checkpoint written by trainer"),
                           ((self.checkpoint, None, 6), "the flags 6 are neither 0 nor TRAINER_AVERAGED")):
            found = self.library.open(*args)
            self.assertIsInstance(found, str)
            self.assertIn(text, found)
        for found, text in (
                (self.predictor.file("none.png"), "none.png: cannot be read: No such file or directory"),
                (self.predictor.file(empty), f"{empty}: cannot be read: the file is empty"),
                (self.predictor.file(self.checkpoint), f"{self.checkpoint}: "),
                (self.predictor.encoded(b"no image"), "not a supported image file"),
                (self.predictor.encoded(b""), "the image file has no bytes"),
                (self.predictor.images(self.pixels(0), Image(None, 1, 1, 0, RGB)), "image 1: its pixels are a null pointer"),
                (self.predictor.images(Image(b"abc", 0, 1, 0, RGB)), "image 0: it has 0 x 1 pixels; height and width must be from 1 to 32768"),
                (self.predictor.images(Image(b"abc", 1, 1, 0, 7)), "image 0: its order 7 is not valid; use TRAINER_RGB or another constant of trainer/predict.h"),
                (self.predictor.images(Image(b"abc", 1, 1, 2, RGB)), "image 0: its stride 2 is too small: a row of 1 pixels has 3 bytes")):
            self.assertIsInstance(found, str)
            self.assertIn(text, found)
        short = ctypes.create_string_buffer(8)
        self.assertIsNone(self.library.library.trainer_predict_open(b"none.pt", None, 0, short, ctypes.c_size_t(8)))
        self.assertEqual(len(short.value), 7)

    def check_example(self, *command):
        run = subprocess.run([*map(str, command), str(self.checkpoint), *map(str, self.files)], capture_output=True, text=True, env=ENVIRONMENT)
        self.assertEqual(run.returncode, 0, run.stderr)
        found = [line.split("  ") for line in run.stdout.splitlines()]
        best = [max(range(3), key=row.__getitem__) for row in self.expected]
        self.assertEqual([(file, name, float(value)) for file, name, value in found],
                         [(str(file), CLASSES[label], row[label]) for file, label, row in zip(self.files, best, self.expected)])
        run = subprocess.run([*map(str, command), "none.pt"], capture_output=True, text=True, env=ENVIRONMENT)
        self.assertEqual((run.returncode, run.stdout), (1, ""))
        self.assertIn("none.pt: there is no such file", run.stderr)

    def test_the_example_in_c(self):
        program = self.folder / "predict"
        subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", ROOT / "examples/predict/predict.c", "-I", ROOT / "include", "-L", LIBRARY.parent,
                        "-ltrainer_predict", "-Wl,--allow-shlib-undefined", "-o", program], check=True)
        self.check_example(program)

    def test_the_example_in_python(self):
        self.check_example("python3", ROOT / "examples/predict/predict.py", LIBRARY)

    @unittest.skipUnless(shutil.which("mcs") and shutil.which("mono"), "mono is not installed (mono-mcs, mono-runtime)")
    def test_the_example_in_c_sharp(self):
        program = self.folder / "Predict.exe"
        subprocess.run(["mcs", f"-out:{program}", ROOT / "examples/predict/Predict.cs"], check=True)
        self.check_example("mono", program)


if __name__ == "__main__":
    unittest.main()
