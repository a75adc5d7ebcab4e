"""Exported networks that take the pixels of images: ONNX Runtime and TorchScript compute the pixels that torchvision's transforms of Pillow
images give, and the probabilities that `trainer predict` prints. TRAINER_BINARY is the program."""

import hashlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import onnx
import onnxruntime
import torch
import torchvision
from PIL import Image, ImageOps
from torchvision.transforms import CenterCrop, Compose, Grayscale, InterpolationMode, Normalize, Pad, Resize, ToTensor, v2

ROOT = pathlib.Path(__file__).resolve().parents[2]
NORMALIZE = Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
IMAGENET = "normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}"
# Network; data set; shape of its samples; transforms of the program and of torchvision.
CASES = {
    "shorter edge": ("resnet18", "image_folder", [3, -1, -1], f"[resize: {{size: 72}}, center_crop: {{size: 64}}, {IMAGENET}]",
                     [Resize(72), CenterCrop(64), ToTensor(), NORMALIZE]),
    "bicubic": ("mobilenet_v2", "image_folder", [3, -1, -1], "[resize: {size: [48, 80], interpolation: bicubic}]",
                [Resize([48, 80], InterpolationMode.BICUBIC), ToTensor()]),
    "crop with black": ("resnet18", "image_folder", [3, -1, -1], f"[center_crop: {{size: [65, 98]}}, {IMAGENET}]", [CenterCrop([65, 98]), ToTensor(), NORMALIZE]),
    "letterbox": ("resnet18", "image_folder", [3, -1, -1], f"[letterbox: {{size: [64, 80], fill: 114}}, {IMAGENET}]",
                  [lambda image: ImageOps.pad(image, (80, 64), Image.Resampling.BILINEAR, (114,) * 3), ToTensor(), NORMALIZE]),
    "lanczos letterbox": ("resnet18", "image_folder", [3, -1, -1], "[letterbox: {size: 65, fill: 7, interpolation: lanczos}]",
                          [lambda image: ImageOps.pad(image, (65, 65), Image.Resampling.LANCZOS, (7,) * 3), ToTensor()]),
    "longer edge": ("resnet18", "image_folder", [3, -1, -1], "[resize: {longest: 70, interpolation: nearest}, pad: {padding: [1, 2, 3, 4], fill: 9}, center_crop: {size: 80}]",
                    [v2.Resize(None, InterpolationMode.NEAREST, max_size=70), Pad([1, 2, 3, 4], 9), CenterCrop(80), ToTensor()]),
    "one size": ("resnet18", "cifar10", [3, 32, 32], f"[{IMAGENET}]", [Resize([32, 32]), ToTensor(), NORMALIZE]),
    "grey": ("resnet20", "mnist", [1, 28, 28], "[normalize: {mean: [0.13], std: [0.31]}]",
             [Grayscale(), Resize([28, 28]), ToTensor(), Normalize([0.13], [0.31])]),
}
HEADERS = [folder for folder in (os.environ.get("ONNXRUNTIME_INCLUDE", ""), "/usr/include/onnxruntime") if (pathlib.Path(folder) / "onnxruntime_cxx_api.h").is_file()]
SIZES = ((375, 500), (61, 47), (64, 64), (73, 300), (1000, 97), (30, 31), (97, 64))


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class ExportImagesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-export-images-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.checkpoint = self.folder / "step_00000001.pt"
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.images = []
        for height, width in SIZES:
            # Images with smooth areas and noise.
            smooth = torch.nn.functional.interpolate(torch.rand(1, 3, 7, 9), (height, width), mode="bicubic")[0]
            pixels = (smooth + 0.2 * torch.randn(3, height, width)).clamp(0, 1).mul(255).byte().permute(1, 2, 0).contiguous()
            path = self.folder / f"{height}x{width}.png"
            Image.fromarray(pixels.numpy()).save(path)
            self.images.append(path)

    def trainer(self, *args, code=0):
        run = subprocess.run([os.environ["TRAINER_BINARY"], *map(str, args)], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(run.returncode, code, run.stderr)
        return run.stdout if code == 0 else run.stderr

    def make(self, name, is_turned_upright=False):
        """Saves a checkpoint of a network of torchvision with random values, and returns its experiment."""
        network, dataset, shape, transforms, _ = CASES[name]
        channels = ", in_channels: 1" if shape[0] == 1 else ""
        model = f"{{name: {network}, num_classes: 10{channels}}}"
        config = (f"experiment: exported\nmodel: {model}\ndataset: {{name: {dataset}, root: nowhere, train_transforms: {transforms}, "
                  f"validation_transforms: {transforms}}}\ntraining: {{epochs: 1}}\nruntime: {{device: cpu}}\namp: {{enabled: false}}\n")
        if shape[0] == 1:
            return config
        state = torchvision.models.get_model(network, num_classes=10).state_dict()
        for key, value in state.items():
            if "running" in key:
                state[key] = torch.rand(value.shape) + 0.5
        torch.save({"format_version": 1, "config": config, "model": state, "ema": None, "sample_shape": shape,
                    "image_files": {"mode": "rgb", "is_turned_upright": is_turned_upright, "channels": 0, "maximum": 0.0},
                    "class_names": [f"kind {i}" for i in range(10)]}, self.checkpoint)
        return config

    def export(self, form, *flags):
        output = self.folder / form
        self.trainer("export", "--checkpoint", self.checkpoint, "--format", form, "--output", output, *flags)
        return output

    def predicted(self):
        """Probabilities of all classes of all images, by the program."""
        rows = [json.loads(line) for line in self.trainer("predict", "--checkpoint", self.checkpoint, "--top-k", 10, "--json", *self.images).splitlines()]
        return numpy.array([[entry["probability"] for entry in sorted(row["classes"], key=lambda entry: entry["label"])] for row in rows])

    def run_onnx(self, path, image, names=None):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        network = onnx.load(path) if not isinstance(path, onnx.ModelProto) else path
        return onnxruntime.InferenceSession(network.SerializeToString(), options).run(names, {"image": image})

    @torch.no_grad()
    def test_pixels_and_probabilities(self):
        for name, (*_, shape, _, transforms) in CASES.items():
            if shape[0] == 1:
                continue
            with self.subTest(name):
                self.make(name)
                file = self.export("onnx")
                onnx.checker.check_model(str(file), full_check=True)
                exported = onnx.load(file)
                exported.graph.output.append(onnx.helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, None))
                script = torch.jit.load(self.export("torchscript")).eval()
                predicted = self.predicted()
                transform = Compose(transforms)
                for path, row in zip(self.images, predicted, strict=True):
                    image = Image.open(path)
                    pixels = numpy.asarray(image)[None]
                    probabilities, prepared = self.run_onnx(exported, pixels)
                    expected = transform(image)
                    # If a pixel differed by 1, the value would differ by at least 0.0039.
                    torch.testing.assert_close(torch.from_numpy(prepared[0]), expected, atol=1e-6, rtol=1e-6)
                    found = script(torch.from_numpy(pixels.copy()))
                    for values in (probabilities[0], found[0].numpy()):
                        self.assertLess(abs(values - row).max(), 1e-5, path.name)
                        self.assertEqual(values.argmax(), row.argmax(), path.name)

    def test_pixels_of_strong_reductions(self):
        """Sums of many weighted pixels stay exact; TorchScript's resize functions are also compared."""
        self.make("shorter edge")
        config = torch.load(self.checkpoint, weights_only=True)
        random = numpy.random.default_rng(1)
        stripes = numpy.tile(numpy.array([255, 254], dtype=numpy.uint8), (2000, 1500))[..., None].repeat(3, 2)
        images = [stripes, random.integers(200, 256, (1500, 2000, 3), dtype=numpy.uint8), numpy.full((1200, 300, 3), 255, dtype=numpy.uint8)]
        for number, interpolation in enumerate(("bilinear", "bicubic", "lanczos", "nearest")):
            mode = InterpolationMode(interpolation)
            resize = f"[resize: {{size: [32, 40], interpolation: {interpolation}}}]"
            text = config["config"].replace(CASES["shorter edge"][3], resize)
            self.assertIn(resize, text)
            torch.save({**config, "config": text}, self.checkpoint)
            exported = onnx.load(self.export("onnx"))
            exported.graph.output.append(onnx.helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, None))
            script = torch.jit.load(self.export("torchscript"))
            for image in images:
                expected = numpy.asarray(Resize([32, 40], mode)(Image.fromarray(image))).astype(numpy.float32)
                prepared = self.run_onnx(exported, image[None], ["images"])[0]
                numpy.testing.assert_array_equal((prepared[0] * 255).round().transpose(1, 2, 0), expected)
                found = script.resize(torch.from_numpy(image).permute(2, 0, 1)[None].float(), 32, 40, number)
                numpy.testing.assert_array_equal(found[0].permute(1, 2, 0).numpy(), expected)

    def test_a_batch_and_fixed_sizes(self):
        self.make("shorter edge")
        images = numpy.stack([numpy.asarray(Image.open(self.images[0])), numpy.asarray(Image.open(self.images[0]).transpose(Image.ROTATE_180))])
        both = self.run_onnx(self.export("onnx", "--outputs", "both"), images, ["logits", "probabilities"])
        numpy.testing.assert_allclose(torch.from_numpy(both[0]).softmax(1).numpy(), both[1], atol=1e-6)
        one = self.run_onnx(self.export("onnx"), images[1:])
        numpy.testing.assert_allclose(one[0][0], both[1][1], atol=1e-6)
        fixed = self.folder / "fixed.onnx"
        printed = self.trainer("export", "--checkpoint", self.checkpoint, "--output", fixed, "--batch-size", 2, "--image-size", "375x500")
        self.assertEqual(printed.splitlines(), [f"{fixed}: resnet18 of {self.checkpoint}", "input image: uint8 [2, 375, 500, 3], red green blue",
                                                "output probabilities", "classes: " + ", ".join(f"kind {i}" for i in range(10))])
        self.assertEqual([dimension.dim_value for dimension in onnx.load(fixed).graph.input[0].type.tensor_type.shape.dim], [2, 375, 500, 3])
        numpy.testing.assert_allclose(self.run_onnx(fixed, images)[0], both[1], atol=1e-6)
        half = self.run_onnx(self.export("onnx", "--fp16"), images)
        self.assertEqual(half[0].dtype, numpy.float32)
        numpy.testing.assert_allclose(half[0], both[1], atol=0.02)
        script = torch.jit.load(self.export("torchscript", "--outputs", "both"))
        logits, probabilities = script(torch.from_numpy(images))
        numpy.testing.assert_allclose(logits.detach().numpy(), both[0], rtol=1e-4, atol=1e-5)
        numpy.testing.assert_allclose(probabilities.detach().numpy(), both[1], atol=1e-5)

    @torch.no_grad()
    def test_fixed_sizes_compute_nothing_but_pixels(self):
        """OpenCV 4.12, onnx2torch and onnxslim refuse files that compute with sizes."""
        for name, (*_, shape, _, transforms) in CASES.items():
            if shape[0] == 1:
                continue
            self.make(name)
            for path in (self.images[0], self.images[4], self.images[5]):
                with self.subTest(name, image=path.name):
                    image = Image.open(path)
                    exported = onnx.load(self.export("onnx", "--batch-size", 1, "--image-size", f"{image.height}x{image.width}"))
                    onnx.checker.check_model(exported, full_check=True)
                    operators = [node.op_type for node in exported.graph.node]
                    preparing = set(operators[:operators.index("Identity")])
                    self.assertLessEqual(preparing, {"Transpose", "Cast", "MatMul", "Mul", "Add", "Floor", "Clip", "Pad", "Slice", "Div", "Sub"})
                    self.assertEqual(operators.count("Cast"), 1)
                    self.assertFalse({"Shape", "Range", "If"} & set(operators))
                    exported.graph.output.append(onnx.helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, None))
                    _, prepared = self.run_onnx(exported, numpy.asarray(image)[None])
                    torch.testing.assert_close(torch.from_numpy(prepared[0]), Compose(transforms)(image), atol=1e-6, rtol=1e-6)

    def test_a_network_in_float64(self):
        self.make("shorter edge")
        state = torch.load(self.checkpoint, weights_only=True)
        torch.save({**state, "config": state["config"].replace("device: cpu", "device: cpu, dtype: float64")}, self.checkpoint)
        image = torch.from_numpy(numpy.asarray(Image.open(self.images[0])).copy())[None]
        found = torch.jit.load(self.export("torchscript"))(image)
        self.assertEqual(found.dtype, torch.float64)
        numpy.testing.assert_allclose(found[0].detach().numpy(), self.predicted()[0], atol=1e-6)
        numpy.testing.assert_allclose(self.run_onnx(self.export("onnx"), image.numpy())[0][0], self.predicted()[0], atol=1e-5)

    def add_photographs(self):
        """Adds a photograph as cameras store it that are held upright or turned."""
        photograph = Image.open(pathlib.Path(importlib.util.find_spec("skimage").origin).parent / "data" / "chelsea.png").convert("RGB")
        for orientation in (1, 3, 6, 8):
            exif = Image.Exif()
            exif[0x0112] = orientation
            self.images.append(self.folder / f"turned_{orientation}.jpg")
            photograph.save(self.images[-1], quality=95, exif=exif)

    def test_the_example(self):
        self.add_photographs()
        best = []
        for is_turned_upright in (True, False):
            with self.subTest(is_turned_upright=is_turned_upright):
                self.make("shorter edge", is_turned_upright)
                best.append(self.check_the_example())
        turned = [[row[2] for row in rows if "turned_6" in row[0]] for rows in best]
        self.assertGreater(max(abs(numpy.subtract(*turned))), 0.001, "the orientation has an effect")

    def check_the_example(self):
        run = subprocess.run([sys.executable, ROOT / "examples" / "predict_onnx.py", self.export("onnx"), *self.images], capture_output=True, text=True, check=True)
        found = [line.split("  ") for line in run.stdout.splitlines()]
        rows = [json.loads(line) for line in self.trainer("predict", "--checkpoint", self.checkpoint, "--json", *self.images).splitlines()]
        expected = [(row["file"], entry["name"], entry["probability"]) for row in rows for entry in row["classes"]]
        self.assertEqual([tuple(line[:2]) for line in found], [row[:2] for row in expected])
        for line, row in zip(found, expected):
            self.assertAlmostEqual(float(line[2][:-1]), 100 * row[2], delta=0.006)
        return expected

    @unittest.skipUnless(HEADERS, "no header of ONNX Runtime: Debian 13 has libonnxruntime-dev, or set ONNXRUNTIME_INCLUDE")
    def test_the_example_in_cpp(self):
        self.add_photographs()
        library = next(pathlib.Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))
        (self.folder / "libonnxruntime.so.1").symlink_to(library)
        program = self.folder / "predict_onnx"
        subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", ROOT / "examples" / "predict_onnx.cpp", "-isystem", HEADERS[0], library, "-isystem",
                        "/usr/include/opencv4", "-lopencv_core", "-lopencv_imgproc", "-lopencv_imgcodecs", "-o", program], check=True)
        for is_turned_upright in (True, False):
            with self.subTest(is_turned_upright=is_turned_upright):
                self.make("shorter edge", is_turned_upright)
                run = subprocess.run([program, self.export("onnx"), *self.images], capture_output=True, text=True, check=True,
                                     env={**os.environ, "LD_LIBRARY_PATH": str(self.folder)})
                rows = [json.loads(line) for line in self.trainer("predict", "--checkpoint", self.checkpoint, "--json", *self.images).splitlines()]
                self.assertEqual(run.stdout, "".join(f"{row['file']}  class {row['classes'][0]['label']}  {100 * row['classes'][0]['probability']:.2f}%\n" for row in rows))

    def test_metadata(self):
        self.make("shorter edge")
        license_file = self.folder / "LICENSE.txt"
        license_file.write_text("Only for tests.\n")
        metadata = {entry.key: entry.value for entry in onnx.load(self.export("onnx", "--license", license_file)).metadata_props}
        self.assertEqual(metadata["license"], "Only for tests.\n")
        self.assertEqual(json.loads(metadata["class_names"])[3], "kind 3")
        description = json.loads(metadata["trainer"])
        self.assertEqual(description["transforms"][0]["resize"]["size"], 72)
        self.assertEqual(description["image_files"], {"mode": "rgb", "is_turned_upright": False, "divided_by": 255})
        self.assertEqual(description["checkpoint_sha256"], hashlib.sha256(self.checkpoint.read_bytes()).hexdigest())

    @torch.no_grad()
    def test_grey_images(self):
        config = self.folder / "grey.yaml"
        config.write_text(self.make("grey"))
        # Random images for one epoch of training.
        rng = numpy.random.default_rng(1)
        raw = self.folder / "nowhere" / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for part in ("train", "t10k"):
            (raw / f"{part}-images-idx3-ubyte").write_bytes(bytes.fromhex("00000803000000100000001c0000001c") + rng.integers(0, 256, 16 * 784, dtype=numpy.uint8).tobytes())
            (raw / f"{part}-labels-idx1-ubyte").write_bytes(bytes.fromhex("0000080100000010") + bytes(i % 10 for i in range(16)))
        self.trainer("--config", config, "--run-dir", self.folder / "run", f"dataset.root={self.folder / 'nowhere'}", "dataset.download=false",
                     "dataloader.batch_size=8")
        self.checkpoint = self.folder / "run" / "checkpoints" / "last.pt"
        exported = onnx.load(self.export("onnx"))
        exported.graph.output.append(onnx.helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, None))
        transform = Compose(CASES["grey"][-1])
        for path, row in zip(self.images, self.predicted(), strict=True):
            grey = Image.open(path).convert("L")
            probabilities, prepared = self.run_onnx(exported, numpy.asarray(grey)[None, :, :, None])
            torch.testing.assert_close(torch.from_numpy(prepared[0]), transform(Image.open(path)), atol=1e-6, rtol=1e-6)
            self.assertLess(abs(probabilities[0] - row).max(), 1e-5, path.name)

    def test_refusals(self):
        config = self.make("shorter edge")
        args = ("export", "--checkpoint", self.checkpoint, "--output", self.folder / "x.onnx")
        for flags, text in ((("--image-size", "480"), "--image-size 480: give height and width in pixels, such as 480x640"),
                            (("--image-size", "480x640", "--input", "tensor"), "--image-size is for --input images; remove it")):
            self.assertIn(text, self.trainer(*args, *flags, code=2))
        state = torch.load(self.checkpoint, weights_only=True)
        torch.save({**state, "config": config.replace("center_crop", "random_crop")}, self.checkpoint)
        self.assertIn("dataset.validation_transforms[1]: random_crop cannot be part of an exported network; use only resize, letterbox, pad with padding_mode constant, center_crop and normalize, or add --input tensor to export the network without its transforms", self.trainer(*args, code=2))
        self.trainer(*args, "--input", "tensor")
        # The exported network first resizes to the size of the data set's images. The message does not count this resize, which the
        # experiment does not have.
        self.make("one size")
        state = torch.load(self.checkpoint, weights_only=True)
        torch.save({**state, "config": state["config"].replace("[normalize", "[random_horizontal_flip, normalize")}, self.checkpoint)
        self.assertIn("dataset.validation_transforms[0]: random_horizontal_flip cannot be part", self.trainer(*args, code=2))
        self.make("shorter edge")
        latin = self.folder / "latin.txt"
        latin.write_bytes(b"\xa9 1990")
        self.assertIn(f"--license {latin}: the file is not text in UTF-8; save it as UTF-8", self.trainer(*args, "--license", latin, code=2))
        state = torch.load(self.checkpoint, weights_only=True)
        state["model"]["bn1.running_var"][3] = 1e6
        torch.save(state, self.checkpoint)
        self.assertIn("--fp16: bn1.running_var has values beyond 65504", self.trainer(*args, "--fp16", code=2))
        for form, flag in (("safetensors", "--input=images"), ("state_dict", "--outputs=logits"), ("torchscript", "--fp16"), ("torchscript", "--batch-size=2")):
            text = self.trainer("export", "--checkpoint", self.checkpoint, "--format", form, "--output", self.folder / "y", flag, code=2)
            self.assertIn(f"{flag.split('=')[0]} is for --format onnx", text)
            self.assertIn(f"not {form}; remove it", text)


if __name__ == "__main__":
    unittest.main()
