"""`trainer verify-export` accepts exported files of all kinds, and detects files that do not agree with their checkpoint: other weights,
other preprocessing, networks of other programs, and files without a network. TRAINER_BINARY is the program."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy
import onnx
import torch
import torchvision
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, Normalize, Resize, ToTensor

BINARY = os.environ["TRAINER_BINARY"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNTIME = next(pathlib.Path(importlib.util.find_spec("onnxruntime").origin).parent.glob("capi/libonnxruntime.so.*"))
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
TRANSFORMS = f"[resize: {{size: 40}}, center_crop: {{size: 32}}, normalize: {{mean: {MEAN}, std: {STD}}}]"
CONFIG = f"""experiment: verified
model: {{name: resnet18, num_classes: 3}}
dataset: {{name: image_folder, root: ROOT, train_transforms: {TRANSFORMS}, validation_transforms: {TRANSFORMS}}}
training: {{epochs: 1}}
runtime: {{device: cpu}}
"""
# The tolerance for float32 sums in another order, as in test_export_images.py. Another preprocessing causes differences of more than 0.01.
ROUNDINGS = 1e-5
CLASSES = ["cat", "dog", "owl"]
SIZES = ((375, 500), (61, 47), (40, 40), (73, 300), (97, 64))


def fold_batches(network, images, transform):
    """Sets the statistics of batch normalisation from these images, so that no class has the probability 1."""
    with torch.no_grad():
        batch = torch.stack([transform(image) for image in images])
        for _ in range(30):
            network.train()(batch)
    return network.eval()


def without_antialiasing(image):
    """Resizes the shorter edge to 40 pixels like cv::resize, without antialiasing."""
    shorter = min(image.size)
    size = [40 * image.height // shorter, 40 * image.width // shorter]
    pixels = torch.from_numpy(numpy.asarray(image).copy()).permute(2, 0, 1)[None].float()
    resized = torch.nn.functional.interpolate(pixels, size, mode="bilinear", align_corners=False)[0].round().byte()
    return Image.fromarray(resized.permute(1, 2, 0).contiguous().numpy())


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class VerifyExportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trainer-verify-export-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        torch.manual_seed(1)
        images = []
        for i, (height, width) in enumerate(SIZES):
            smooth = torch.nn.functional.interpolate(torch.rand(1, 3, 7, 9), (height, width), mode="bicubic")[0]
            pixels = (smooth + 0.2 * torch.randn(3, height, width)).clamp(0, 1).mul(255).byte().permute(1, 2, 0).contiguous()
            images.append(Image.fromarray(pixels.numpy()))
            for split in ("train", "val"):
                path = cls.folder / "data" / split / CLASSES[i % 3] / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                images[-1].save(path)
        cls.images = cls.folder / "data" / "val"
        cls.transform = Compose([Resize(40), CenterCrop(32), ToTensor(), Normalize(MEAN, STD)])
        cls.network = fold_batches(torchvision.models.resnet18(num_classes=3), images, cls.transform)
        cls.checkpoint = cls.save("network.pt", cls.network)

    @classmethod
    def save(cls, name, network, **changes):
        path = cls.folder / name
        config = changes.pop("config", CONFIG.replace("ROOT", str(cls.folder / "data")))
        torch.save({"format_version": 1, "config": config, "model": network.state_dict(), "ema": None, "sample_shape": [3, -1, -1], "class_names": CLASSES,
                    **changes}, path)
        return path

    def trainer(self, *args, code=0, environment=(), cwd=None):
        run = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1", **dict(environment)})
        self.assertEqual(run.returncode, code, run.stderr)
        return run

    def export(self, name, *flags, checkpoint=None):
        path = self.folder / name
        form = () if name.endswith(".onnx") else ("--format", "torchscript")
        self.trainer("export", "--checkpoint", checkpoint or self.checkpoint, "--output", path, *form, *flags)
        return path

    def verify(self, file, *args, code=0, checkpoint=None):
        run = self.trainer("verify-export", file, "--checkpoint", checkpoint or self.checkpoint, "--runtime", RUNTIME, *args, code=code)
        return run.stderr if code not in (0, 1) else run

    def test_files_of_all_kinds(self):
        """Also checks the figures that the command reports."""
        for name, *flags in (("image.onnx",), ("both.onnx", "--outputs", "both"), ("image.pt",), ("both.pt", "--outputs", "both"),
                             ("logits.pt", "--outputs", "logits"), ("probabilities.pt", "--input", "tensor", "--outputs", "probabilities"), ("four.onnx", "--input", "tensor", "--batch-size", 4)):
            with self.subTest(name):
                run = self.verify(self.export(name, *flags), "--data", self.images, "--json")
                found = json.loads(run.stdout)
                self.assertNotIn("warning", run.stderr)
                self.assertEqual(found["num_images"], len(SIZES))
                self.assertLess(found["largest_difference"], ROUNDINGS)
                self.assertLessEqual(found["mean_difference"], found["largest_difference"])
                self.assertEqual(found["other_first_class"], [])
                self.assertIn("ONNX Runtime" if name.endswith(".onnx") else "LibTorch", found["engine"])

    def test_a_table(self):
        run = self.verify(self.export("image.onnx"), "--data", self.images / "cat")
        self.assertRegex(run.stdout, r"^2 images: .*image\.onnx with ONNX Runtime [\d.]+, and .*network\.pt\n"
                                     r"largest difference of a probability  \d\.\d\de-\d\d, of .*/cat/\d\.png\n"
                                     r"mean difference                      \d\.\d\de-\d\d\n"
                                     r"different most probable class        0 images\n$")
        self.assertEqual(run.stderr, "")

    def test_a_part_of_the_data_set(self):
        found = json.loads(self.verify(self.export("image.onnx"), "--json").stdout)
        self.assertEqual(found["num_images"], len(SIZES))
        self.assertIn("data/val/", found["image_of_largest_difference"])
        found = json.loads(self.verify(self.export("image.onnx"), "--split", "train", "--limit", 3, "--json").stdout)
        self.assertEqual(found["num_images"], 3)
        self.assertIn("data/train/", found["image_of_largest_difference"])

    def test_other_preprocessing(self):
        """The reported difference is that between the named preprocessing and the checkpoint's bicubic one, computed in Python."""
        cubic = self.save("cubic.pt", self.network, config=CONFIG.replace("ROOT", str(self.folder / "data")).replace("size: 40", "size: 40, interpolation: bicubic"))
        for name, *flags in (("cubic.onnx",), ("cubic_tensor.onnx", "--input", "tensor")):
            file = self.export(name, *flags, checkpoint=cubic)
            self.assertLess(json.loads(self.verify(file, "--data", self.images, "--json", checkpoint=cubic).stdout)["largest_difference"], ROUNDINGS)
            for way, resize in (("pillow-bilinear", Resize(40)), ("opencv", None)):
                with self.subTest(name, way=way):
                    run = self.verify(file, "--data", self.images, "--preprocess", way, "--json", checkpoint=cubic, code=1)
                    found = json.loads(run.stdout)
                    self.assertIn(f"more than --tolerance 0.001, from that of {cubic}; without --preprocess {way}, the command compares the networks on the same pixels", run.stderr)
                    differences = []
                    for path in self.images.glob("*/*"):
                        with torch.no_grad():
                            image = Image.open(path)
                            resized = resize(image) if resize else without_antialiasing(image)
                            of_way = self.network(Compose(self.transform.transforms[1:])(resized)[None]).softmax(1)
                            of_checkpoint = self.network(Compose([Resize(40, torchvision.transforms.InterpolationMode.BICUBIC), *self.transform.transforms[1:]])(image)[None]).softmax(1)
                            differences.append((of_way - of_checkpoint).abs().max().item())
                    # OpenCV computes with 11 bits, so a pixel can differ by one.
                    self.assertAlmostEqual(found["largest_difference"], max(differences), delta=1e-5 if resize else 0.01)
                    self.assertGreater(max(differences), 0.02)
        plain = self.save("plain.pt", self.network, config=CONFIG.replace("ROOT", str(self.folder / "data")).replace("resize: {size: 40}, ", ""))
        self.assertIn("--preprocess opencv: dataset.validation_transforms of the checkpoint do not begin with resize; remove this option",
                      self.verify(self.export("plain.onnx", checkpoint=plain), "--data", self.images, "--preprocess", "opencv", checkpoint=plain, code=2))

    def test_the_exif_orientation(self):
        photograph = Image.open(pathlib.Path(importlib.util.find_spec("skimage").origin).parent / "data" / "chelsea.png").convert("RGB")
        exif = Image.Exif()
        exif[0x0112] = 6
        photograph.save(self.folder / "turned.jpg", quality=95, exif=exif)
        for is_turned_upright in (True, False):
            checkpoint = self.save("turned.pt", self.network,
                                   image_files={"mode": "rgb", "is_turned_upright": is_turned_upright, "channels": 0, "maximum": 0.0})
            file = self.export("turned.onnx", checkpoint=checkpoint)
            found = json.loads(self.verify(file, "--data", self.folder / "turned.jpg", "--json", checkpoint=checkpoint).stdout)
            self.assertLess(found["largest_difference"], ROUNDINGS)

    def test_code_of_torchscript_files(self):
        """A file that was not exported from the checkpoint is run only with --trust."""
        script = self.folder / "other_script.pt"
        torch.jit.trace(self.network, torch.zeros(1, 3, 32, 32)).save(script)
        error = self.verify(script, "--data", self.images, code=2)
        self.assertIn(f"error: {script}: its code would run, which can read and overwrite your files, but its description does not name the checkpoint; "
                      "give the checkpoint from which it was exported, or, if you trust the file, add --trust\n", error)
        self.assertEqual(self.verify(script, "--data", self.images, "--trust").returncode, 0)

    def test_a_data_set_that_skips_images(self):
        data = self.folder / "skipped"
        shutil.copytree(self.folder / "data", data)
        file = self.export("image.onnx")
        broken = next((data / "val").glob("*/0.png"))
        broken.write_bytes(b"")
        self.verify(file, f"dataset.root={data}", code=3)
        run = self.verify(file, f"dataset.root={data}", "dataset.on_error=skip", "--json")
        self.assertIn(f"{broken}: cannot be read: the file is empty\n", run.stderr)
        found = json.loads(run.stdout)
        self.assertEqual((found["num_images"], found["num_unusable"]), (len(SIZES) - 1, 1))

    def test_other_weights(self):
        other = torchvision.models.resnet18(num_classes=3)
        other.load_state_dict(self.network.state_dict())
        with torch.no_grad():
            other.fc.weight.copy_(self.network.fc.weight.roll(1, 0))
            other.fc.bias.copy_(self.network.fc.bias.roll(1, 0))
        file = self.export("other.onnx", checkpoint=self.save("other.pt", other))
        run = self.verify(file, "--data", self.images, code=1)
        self.assertIn(f"warning: {file} was not exported from {self.checkpoint}, or {self.checkpoint} was changed after the export", run.stderr)
        self.assertRegex(run.stderr, r"error: .*other\.onnx: a probability differs by \d\.\d\de-\d\d, more than --tolerance 0\.001, from that of .*network\.pt; export it again from this checkpoint")
        self.assertIn("different most probable class        5 images\n", run.stdout)
        self.assertRegex(run.stdout, r"  .*/cat/0\.png: (cat|dog|owl) \d+\.\d\d%, by the checkpoint (cat|dog|owl) \d+\.\d\d%\n")
        self.assertEqual(len(json.loads(self.verify(file, "--data", self.images, "--tolerance", 1, "--json").stdout)["other_first_class"]), 5)

    def test_values_that_are_not_numbers(self):
        other = torchvision.models.resnet18(num_classes=3)
        other.load_state_dict(self.network.state_dict())
        with torch.no_grad():
            other.fc.weight[0, 0] = float("nan")
        checkpoint = self.save("nan.pt", other)
        file = self.export("nan.onnx", checkpoint=checkpoint)
        for given, named in ((self.checkpoint, file), (checkpoint, checkpoint)):
            self.assertRegex(self.verify(file, "--data", self.images, code=1, checkpoint=given).stderr,
                             f"error: {named}: its values for .*png are not finite numbers and cannot be compared\n")

    def test_files_of_python(self):
        """TorchScript of torch.jit.trace, and ONNX of other tools, that take the network's input and return logits."""
        script = self.folder / "python.pt"
        torch.jit.trace(self.network, torch.zeros(1, 3, 32, 32)).save(script)
        found = json.loads(self.verify(script, "--trust", "--data", self.images, "--json").stdout)
        self.assertLess(found["largest_difference"], ROUNDINGS)
        # If a network has several outputs, the first one is compared. The message about a difference says what to check.
        class Several(torch.nn.Module):
            def __init__(self, network):
                super().__init__()
                self.network = network

            def forward(self, x):
                logits = self.network(x)
                return logits, -logits

        torch.jit.trace(Several(self.network), torch.zeros(1, 3, 32, 32)).save(script)
        self.assertLess(json.loads(self.verify(script, "--trust", "--data", self.images, "--json").stdout)["largest_difference"], ROUNDINGS)
        run = self.verify(script, "--trust", "--data", self.images, "--tolerance", 0, code=1)
        self.assertIn("more than --tolerance 0, from that of", run.stderr)
        self.assertIn("; use the checkpoint from which it was exported\n", run.stderr)
        half = self.export("half.onnx", "--fp16")
        self.assertIn("; if the file uses float16, set a larger --tolerance\n", self.verify(half, "--data", self.images, "--tolerance", "1e-5", code=1).stderr)
        self.verify(half, "--data", self.images, "--tolerance", 0.02)
        for description in ("{\"trainer\": \"0.1.0\"}", "{\"trainer\": \"1\", \"checkpoint_sha256\": \"\", \"input\": \"images\", \"outputs\": []}",
                            "{\"trainer\": \"1\", \"checkpoint_sha256\": \"\", \"input\": \"images\", \"outputs\": 3}"):
            torch.jit.save(torch.jit.load(script), script, _extra_files={"trainer.json": description})
            self.assertIn("python.pt: its description does not state its input and outputs; export the network again",
                          self.verify(script, "--trust", "--data", self.images, code=2))
        file = self.folder / "python.onnx"
        network = onnx.load(self.export("tensor.onnx", "--input", "tensor"))
        del network.metadata_props[:]
        onnx.save(network, file)
        self.assertLess(json.loads(self.verify(file, "--data", self.images, "--json").stdout)["largest_difference"], ROUNDINGS)

    def test_a_calibrated_checkpoint(self):
        calibrated = self.save("calibrated.pt", self.network, operating_point={"temperature": 2.5, "reject_below": 0.0})
        for name, *flags in (("warm.onnx",), ("warm.pt", "--outputs", "logits")):
            found = json.loads(self.verify(self.export(name, *flags, checkpoint=calibrated), "--data", self.images, "--json", checkpoint=calibrated).stdout)
            self.assertLess(found["largest_difference"], ROUNDINGS)
        # A file that was exported before the calibration.
        run = self.verify(self.export("cold.onnx"), "--data", self.images, checkpoint=calibrated, code=1)
        self.assertIn("for example by trainer calibrate", run.stderr)

    def test_images_that_cannot_be_used(self):
        images = self.folder / "images"
        images.mkdir()
        shutil.copy(next(self.images.glob("*/0.png")), images / "a.png")
        (images / "empty.png").write_bytes(b"")
        Image.fromarray(numpy.arange(64 * 64, dtype=numpy.uint16).reshape(64, 64) * 16).save(images / "deep.png")
        file = self.export("image.onnx")
        error = self.verify(file, "--data", images, code=3)
        self.assertIn(f"warning: {images}/empty.png: cannot be read: the file is empty\n", error)
        self.assertIn(f"warning: {images}/deep.png: it is a 16-bit grey image, and all values above 255 would become white", error)
        self.assertIn("error: 2 images cannot be used, for the reasons above; all others were compared", error)
        self.assertIn("error: no image could be compared, for the reasons above", self.verify(file, "--data", images / "empty.png", code=3))
        self.assertIn(f"{images}/none.png: cannot be read: No such file or directory", self.verify(file, "--data", images / "none.png", code=3))
        fixed = self.export("fixed.onnx", "--image-size", "375x500")
        error = self.verify(fixed, "--data", self.images, code=3)
        self.assertIn("/1.png: it is 47 pixels wide and 61 high, but the exported network takes only images that are 500 wide and 375 high; resize it, or export the network without "
                      "--image-size\n", error)
        self.assertIn("error: 4 images cannot be used", error)

    def test_files_that_are_no_network(self):
        text, empty = self.folder / "text.onnx", self.folder / "empty.onnx"
        text.write_text("not a network")
        empty.write_bytes(b"")
        two = self.folder / "two.onnx"
        inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3]) for name in "ab"]
        output = onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, [1, 3])
        opset = [onnx.helper.make_opsetid("", 17)]
        add = onnx.helper.make_graph([onnx.helper.make_node("Add", ["a", "b"], ["c"])], "g", inputs, [output])
        onnx.save(onnx.helper.make_model(add, opset_imports=opset, ir_version=8), two)
        flat = self.folder / "flat.onnx"
        relu = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["a"], ["c"])], "g", inputs[:1], [output])
        onnx.save(onnx.helper.make_model(relu, opset_imports=opset, ir_version=8), flat)
        few = self.save("few.pt", torchvision.models.resnet18(num_classes=2), class_names=CLASSES[:2],
                        config=CONFIG.replace("ROOT", "nowhere").replace("num_classes: 3", "num_classes: 2"))
        for file, text in ((self.folder / "none.onnx", "none.onnx: No such file or directory; give a file that trainer export has written"),
                           (empty, "empty.onnx: it is empty; give a file that trainer export has written"),
                           (self.folder, f"{self.folder}: it is a folder; give a file that trainer export has written"),
                           (text, "text.onnx: ONNX Runtime "), (self.checkpoint, "network.pt: LibTorch cannot read it as TorchScript: "),
                           (two, "two.onnx: the network has 2 inputs; give a file with a network that has one input"),
                           (flat, "flat.onnx: its input has the shape [1, 3], but the network of the checkpoint needs [-1, 3, 32, 32]; use the checkpoint"),
                           (self.export("few.onnx", checkpoint=few), "few.onnx: its output has the shape [1, 2], but the checkpoint has 3 classes; use the checkpoint"),
                           (self.export("few_script.pt", checkpoint=few), "few_script.pt: its code would run, which can read and overwrite your files")):
            with self.subTest(file.name):
                error = self.verify(file, "--data", self.images, code=2)
                self.assertIn(text, error)
                self.assertEqual(error.count("error: "), 1, error)
        weights = self.folder / "weights.pt"
        torch.save(self.network.state_dict(), weights)
        self.assertIn("this file holds weights but no experiment; give a checkpoint, ", self.verify(two, "--data", self.images, checkpoint=weights, code=2))

    def test_a_data_set_of_pixels_and_averaged_parameters(self):
        config = self.folder / "small.yaml"
        config.write_text((ROOT / "configs" / "quickstart.yaml").read_text())
        run = self.folder / "pixels"
        subprocess.run([BINARY, "--config", config, "--run-dir", run, "training.epochs=null", "training.steps=3", "training.ema={decay: 0.5}", "model.name=demo_conv"],
                       cwd=ROOT, check=True, capture_output=True)
        for flags in ((), ("--ema",)):
            file = self.export("pixels.onnx", *flags, checkpoint=run)
            done = subprocess.run([BINARY, "verify-export", file, "--checkpoint", run, "--runtime", RUNTIME, "--json", "--limit", "120", *flags], cwd=ROOT, capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            self.assertEqual((found["num_images"], found["num_unusable"]), (120, 0))
            self.assertLess(found["largest_difference"], ROUNDINGS)
        # The last file has the averaged parameters, which differ from the parameters.
        done = subprocess.run([BINARY, "verify-export", file, "--checkpoint", run, "--runtime", RUNTIME, "--limit", "8", "--tolerance", "1e-4"], cwd=ROOT, capture_output=True)
        self.assertEqual(done.returncode, 1)

    def test_grey_images(self):
        raw = self.folder / "mnist" / "MNIST" / "raw"
        raw.mkdir(parents=True)
        rng = numpy.random.default_rng(1)
        for part in ("train", "t10k"):
            (raw / f"{part}-images-idx3-ubyte").write_bytes(bytes.fromhex("00000803000000100000001c0000001c") + rng.integers(0, 256, 16 * 784, dtype=numpy.uint8).tobytes())
            (raw / f"{part}-labels-idx1-ubyte").write_bytes(bytes.fromhex("0000080100000010") + bytes(i % 10 for i in range(16)))
        config = self.folder / "grey.yaml"
        config.write_text("experiment: grey\nmodel: {name: resnet20, in_channels: 1}\n"
                          f"dataset: {{name: mnist, root: {self.folder / 'mnist'}, download: false, validation_transforms: [normalize: {{mean: [0.13], std: [0.31]}}]}}\n"
                          "dataloader: {batch_size: 8}\ntraining: {epochs: 1}\nruntime: {device: cpu}\n")
        run = self.folder / "grey"
        self.trainer("--config", config, "--run-dir", run)
        for name, *flags in (("grey.onnx",), ("grey_tensor.onnx", "--input", "tensor"), ("grey.pt",)):
            for images in ((), ("--data", self.images)):
                found = json.loads(self.verify(self.export(name, *flags, checkpoint=run), *images, "--json", checkpoint=run).stdout)
                self.assertEqual(found["num_images"], 5 if images else 16)
                self.assertLess(found["largest_difference"], ROUNDINGS)

    def test_finding_onnx_runtime(self):
        file = self.export("image.onnx")
        args = ("verify-export", file, "--checkpoint", self.checkpoint, "--data", self.images)
        python = {"PATH": f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin"}
        # No Python file of the current folder is executed.
        planted = self.folder / "planted"
        for module in ("glob", "importlib", "onnxruntime"):
            (planted / module).mkdir(parents=True)
            (planted / module / "__init__.py").write_text(f"open('{planted}/executed', 'w')\n")
        self.assertIn("with ONNX Runtime", self.trainer(*args, environment=python.items(), cwd=planted).stdout)
        self.assertFalse((planted / "executed").exists())
        bare = self.folder / "bare"
        bare.mkdir()
        (bare / "python3").write_text("#!/bin/sh\nexit 1\n")
        (bare / "python3").chmod(0o755)
        error = self.trainer(*args, environment={"PATH": str(bare)}.items(), code=2).stderr
        self.assertIn("ONNX Runtime, which runs .onnx files, cannot be loaded: libonnxruntime.so: cannot open shared object file: No such file or directory; install it for the python3 in PATH (pip install onnxruntime), or give its library with --runtime", error)
        for runtime, text in ((self.folder / "none.so", "none.so: the library cannot be loaded: "),
                              (pathlib.Path(BINARY).with_name("libtrainer_predict.so"), "libtrainer_predict.so: it is not the library of ONNX Runtime")):
            self.assertIn(text, self.trainer(*args, "--runtime", runtime, code=2).stderr)
        # TorchScript files need no runtime.
        self.trainer("verify-export", self.export("image.pt"), *args[2:], environment={"PATH": str(bare)}.items())


if __name__ == "__main__":
    unittest.main()
