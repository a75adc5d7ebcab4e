"""Images of all depths reach the network with the values that Pillow, torchvision and NumPy give them. TRAINER_BINARY is the program."""

import json
import os
import pathlib
import struct
import sys
import unittest

import numpy as np
from PIL import Image, ImageOps

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import FolderCase, events, trainer  # noqa: E402

SIZE = 12
FILTERS = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS}
RNG = np.random.default_rng(0)


def tiff(values, planar=False, tile=None, big_endian=False):
    """A TIFF file of an array [height, width, channels], without compression."""
    height, width, channels = values.shape
    order = ">" if big_endian else "<"
    values = values.astype(values.dtype.newbyteorder(order))
    kind = {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    parts = [values[:, :, c:c + 1] for c in range(channels)] if planar else [values]
    if tile:
        padded = lambda part: np.pad(part, [(0, -height % tile), (0, -width % tile), (0, 0)])
        parts = [padded(part)[y:y + tile, x:x + tile] for part in parts for y in range(0, height, tile) for x in range(0, width, tile)]
    blocks = [part.tobytes() for part in parts]
    data, offsets = b"", []
    for block in blocks:
        offsets.append(8 + len(data))
        data += block
    bits = 8 * values.dtype.itemsize
    tags = [(256, "I", [width]), (257, "I", [height]), (258, "H", [bits] * channels), (259, "H", [1]), (262, "H", [1]), (277, "H", [channels]),
            (284, "H", [2 if planar else 1]), (339, "H", [kind] * channels)]
    if channels > 1:
        tags.append((338, "H", [0] * (channels - 1)))
    counts = [len(block) for block in blocks]
    tags += [(322, "I", [tile]), (323, "I", [tile]), (324, "I", offsets), (325, "I", counts)] if tile else [(273, "I", offsets), (278, "I", [height]), (279, "I", counts)]
    tags.sort()
    at = 8 + len(data)
    table, extra = struct.pack(order + "H", len(tags)), b""
    begin_of_extra = at + 2 + 12 * len(tags) + 4
    for tag, code, content in tags:
        packed = struct.pack(order + code * len(content), *content)
        table += struct.pack(order + "HHI", tag, {"H": 3, "I": 4}[code], len(content))
        if len(packed) <= 4:
            table += packed.ljust(4, b"\0")
        else:
            table += struct.pack(order + "I", begin_of_extra + len(extra))
            extra += packed
    return (b"MM\0*" if big_endian else b"II*\0") + struct.pack(order + "I", at) + data + table + bytes(4) + extra


def losses(run):
    return [[event["loss"] for event in events(run, kind)] for kind in ("train", "validation")]


def write(path, content):
    """Writes bytes, an image of Pillow or an array."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, Image.Image):
        content.save(path)
    else:
        np.save(path, content)


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class ImageDepthsTest(FolderCase):
    def inputs(self, files, transforms, mode="auto", **keys):
        """The network's input for each of these files, after a training on them: float32 [channels, height, width]."""
        folder = self.folder / "data" / "a"
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        paths = []
        for i, (ending, content) in enumerate(files):
            paths.append(folder / f"{i:02}{ending}")
            write(paths[-1], content)
        config = {"experiment": "x", "model": {"name": "layers", "layers": ["flatten", {"linear": {"name": "head"}}]},
                  "dataset": {"name": "image_folder", "root": str(self.folder / "data"), "mode": mode, "train_transforms": transforms,
                              "validation_transforms": transforms, "validation_split": 0, **keys},
                  "dataloader": {"batch_size": 1}, "optimizer": {"name": "sgd", "lr": 0.01}, "training": {"epochs": 1}, "validation": {"every_epochs": None},
                  "runtime": {"device": "cpu"}, "amp": {"enabled": False}, "logging": {"tensorboard": False}}
        (self.folder / "x.yaml").write_text(json.dumps(config))
        run = self.folder / f"run_{len(list(self.folder.iterdir()))}"
        self.ran("--config", self.folder / "x.yaml", "--run-dir", run)
        features = self.folder / "features.npy"
        features.unlink(missing_ok=True)
        self.ran("predict", "--checkpoint", run, "--embeddings", features, *paths)
        return np.load(features)

    def assert_inputs(self, files, expected, transforms=(), **keys):
        """`expected`: arrays [height, width, channels] of the values that must reach the network."""
        found = self.inputs(files, list(transforms) or [{"center_crop": {"size": list(expected[0].shape[:2])}}], **keys)
        for row, image in zip(found, expected, strict=True):
            np.testing.assert_array_equal(row, image.astype(np.float32).transpose(2, 0, 1).reshape(-1))

    def test_16_bits_of_grey(self):
        grey = [RNG.integers(0, 65536, (17, 11), dtype=np.uint16) for _ in range(6)]
        image = [Image.fromarray(values) for values in grey]
        self.assertEqual(image[0].mode, "I;16")
        # Pillow writes PGM files of this mode only with the largest value 65535.
        pgm = b"P5\n11 17\n65535\n" + grey[2].astype(">u2").tobytes()
        small = b"P5\n11 17\n1000\n" + (grey[5] % 1001).astype(">u2").tobytes()
        self.assert_inputs([(".png", image[0]), (".tif", image[1]), (".pgm", pgm), (".tif", tiff(grey[3][..., None], big_endian=True)),
                            (".tif", tiff(grey[4][..., None], tile=16)), (".pgm", small)],
                           [values[..., None] / np.float32(65535) for values in grey[:5]] + [np.rint((grey[5] % 1001) / 1000 * 65535).astype(np.float32)[..., None] / np.float32(65535)])

    def test_resized_and_normalised(self):
        mean, std = np.float32(0.45), np.float32(0.2)
        sizes = ((40, 23), (9, 7), (61, 12), (12, 30), (200, 31))
        for name, kind in FILTERS.items():
            resize = [{"resize": {"size": [SIZE, SIZE], "interpolation": name}}, {"normalize": {"mean": [float(mean)], "std": [float(std)]}}]
            # Pillow's results above 65535 wrap around in their lower byte, so the values are small enough to avoid such results.
            grey = [RNG.integers(9000, 56000, size, dtype=np.uint16) for size in sizes]
            numbers = [RNG.normal(size=size).astype(np.float32) for size in sizes]
            for images, maximum in ((grey, np.float32(65535)), (numbers, np.float32(1))):
                with self.subTest(interpolation=name, dtype=images[0].dtype):
                    resized = [np.asarray(Image.fromarray(values).resize((SIZE, SIZE), kind)) for values in images]
                    self.assert_inputs([(".tif", Image.fromarray(values)) for values in images],
                                       [((values / maximum - mean) / std)[..., None] for values in resized], resize)

    def test_letterbox_pad_and_crops(self):
        values = RNG.integers(9000, 56000, (40, 20), dtype=np.uint16)
        image = Image.fromarray(values)
        padded = np.asarray(ImageOps.pad(image, (SIZE, SIZE), Image.Resampling.BILINEAR))
        self.assert_inputs([(".png", image)], [padded[..., None] / np.float32(65535)], [{"letterbox": {"size": SIZE}}])
        reflected = np.pad(values, ((2, 4), (1, 3)), mode="reflect")
        self.assert_inputs([(".png", image)], [reflected[..., None] / np.float32(65535)],
                           [{"center_crop": {"size": [40, 20]}}, {"pad": {"padding": [1, 2, 3, 4], "padding_mode": "reflect"}}])
        zeros = np.pad(values, ((3, 3), (3, 3)))[1:, 2:]
        self.assert_inputs([(".png", image)], [zeros[:44, :22][..., None] / np.float32(65535)],
                           [{"center_crop": {"size": [40, 20]}}, {"pad": {"padding": [1, 2, 1, 2]}}])
        mirrored = np.asarray(image)[::-1, ::-1][10:30, 5:15]
        self.assert_inputs([(".png", image)], [mirrored[..., None] / np.float32(65535)],
                           [{"random_horizontal_flip": {"p": 1}}, {"random_vertical_flip": {"p": 1}}, {"center_crop": {"size": [20, 10]}}])

    def test_channels_of_tiff(self):
        for dtype, scale in ((np.uint8, 255), (np.uint16, 65535), (np.int16, 1), (np.float32, 1), (np.float64, 1)):
            with self.subTest(dtype=dtype):
                is_float = np.dtype(dtype).kind == "f"
                draw = lambda: (RNG.normal(size=(17, 21, 5)) if is_float else RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (17, 21, 5))).astype(dtype)
                images = [draw() for _ in range(4)]
                files = [(".tif", tiff(images[0])), (".tif", tiff(images[1], planar=True)), (".tiff", tiff(images[2], big_endian=True)),
                         (".tif", tiff(images[3], tile=16, planar=True))]
                self.assert_inputs(files, [values.astype(np.float32) / np.float32(scale) for values in images])

    def test_arrays_of_numpy(self):
        for dtype, scale in ((np.uint8, 255), (np.uint16, 65535), (np.int16, 1), (np.float32, 1), (np.float64, 1)):
            with self.subTest(dtype=dtype):
                images = [(1000 * RNG.normal(size=(9, 6, 4))).astype(dtype) for _ in range(3)]
                files = [(".npy", images[0]), (".npy", np.asfortranarray(images[1])), (".npy", images[2].astype(np.dtype(dtype).newbyteorder(">")))]
                self.assert_inputs(files, [values.astype(np.float32) / np.float32(scale) for values in images])
        flat = RNG.normal(size=(9, 6)).astype(np.float32)
        self.assert_inputs([(".npy", flat)], [flat[..., None]], mode="raw")

    def test_8_bits_of_grey(self):
        pixels = RNG.integers(0, 256, (15, 10, 4), dtype=np.uint8)
        colours = Image.fromarray(pixels[..., :3])
        images = [(".png", colours), (".png", Image.fromarray(pixels[..., :2], "LA")), (".png", colours.quantize(30)), (".tif", Image.fromarray(pixels, "CMYK")),
                  (".png", Image.fromarray(pixels, "RGBA")), (".bmp", colours), (".png", Image.fromarray(pixels[..., 0]))]
        self.assert_inputs(images, [np.asarray(image.convert("L"))[..., None] / np.float32(255) for _, image in images], mode="grey")
        self.assert_inputs(images, [np.asarray(image.convert("RGB")) / np.float32(255) for _, image in images], mode="rgb")
        # A JPEG file is decoded only as far as a crop needs it.
        photograph = Image.fromarray(RNG.integers(0, 256, (64, 48, 3), dtype=np.uint8)).resize((240, 160), Image.Resampling.BICUBIC)
        photograph.save(self.folder / "x.jpg", quality=90)
        with Image.open(self.folder / "x.jpg") as image:
            expected = np.asarray(image.convert("L"))[60:100, 100:140]
        self.assert_inputs([(".jpg", (self.folder / "x.jpg").read_bytes())], [expected[..., None] / np.float32(255)], [{"center_crop": {"size": 40}}], mode="grey")

    def test_orientations(self):
        photograph = Image.fromarray(RNG.integers(0, 256, (12, 9, 3), dtype=np.uint8)).resize((90, 120), Image.Resampling.BICUBIC)
        depth = Image.fromarray(RNG.integers(0, 65536, (120, 90), dtype=np.uint16))

        def cropped(image, maximum):
            values = np.asarray(image).reshape(image.height, image.width, -1) / np.float32(maximum)
            return values[(image.height - 80) // 2:, (image.width - 80) // 2:][:80, :80]

        files, upright, as_stored, deep, deep_upright = [], [], [], [], []
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[274] = orientation
            for ending, options in ((".jpg", {"quality": 90}), (".png", {}), (".webp", {"lossless": True})):
                path = self.folder / f"x{ending}"
                photograph.save(path, exif=exif, **options)
                files.append((ending, path.read_bytes()))
                with Image.open(path) as image:
                    as_stored.append(cropped(image.convert("RGB"), 255))
                    upright.append(cropped(ImageOps.exif_transpose(image).convert("RGB"), 255))
            path = self.folder / "deep.png"
            depth.save(path, exif=exif)
            deep.append((".png", path.read_bytes()))
            with Image.open(path) as image:
                deep_upright.append(cropped(ImageOps.exif_transpose(image), 65535))
        middle = [{"center_crop": {"size": 80}}]
        self.assert_inputs(files, upright, middle)
        self.assert_inputs(files, as_stored, middle, exif_orientation="ignore")
        self.assert_inputs(deep, deep_upright, middle)

    def configured(self, files, transforms=(), **keys):
        """An experiment on two classes, each of which has all these files."""
        for name in "ab":
            folder = self.folder / "data" / name
            folder.mkdir(parents=True, exist_ok=True)
            for i, (ending, content) in enumerate(files):
                write(folder / f"{i:02}{ending}", content)
        config = {"experiment": "x", "model": {"name": "resnet20"}, "training": {"epochs": 2}, "optimizer": {"name": "sgd", "lr": 0.1},
                  "dataset": {"name": "image_folder", "root": str(self.folder / "data"), "validation_split": 0.25,
                              "train_transforms": list(transforms) or [{"resize": {"size": [8, 8]}}], "validation_transforms": [{"resize": {"size": [8, 8]}}], **keys},
                  "dataloader": {"global_batch_size": 4}, "runtime": {"device": "cpu", "dtype": "float64"}, "amp": {"enabled": False},
                  "logging": {"tensorboard": False}}
        path = self.folder / "x.yaml"
        path.write_text(json.dumps(config))
        return path

    def refused(self, *arguments):
        process = trainer(*arguments)
        self.assertNotEqual(process.returncode, 0, process.out)
        return process.err

    def test_ranks_train_alike(self):
        files = [(".png", Image.fromarray(RNG.integers(0, 65536, (9, 8 + i), dtype=np.uint16))) for i in range(6)]
        config = self.configured(files, [{"random_resized_crop": {"size": 8}}, "random_horizontal_flip", {"normalize": {"mean": [0.5], "std": [0.3]}}])
        for ranks in (1, 2):
            self.ran("launch", "--nproc-per-node", ranks, "--config", config, "--run-dir", self.folder / f"w{ranks}", "distributed.sync_batch_norm=true")
        for one, two in zip(losses(self.folder / "w1"), losses(self.folder / "w2"), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12)
        self.ran("launch", "--nproc-per-node", 2, "--config", config, "--run-dir", self.folder / "two", "dataset.distribution=scatter", "distributed.sync_batch_norm=true")
        self.assertEqual(losses(self.folder / "two"), losses(self.folder / "w2"))

    def test_what_does_not_fit_is_named(self):
        files = [(".png", Image.fromarray(RNG.integers(0, 65536, (9, 8), dtype=np.uint16))) for _ in range(4)]
        config = self.configured(files)
        check = lambda *keys: self.refused("validate", "--config", config, *keys)
        self.assertIn("dataset.mode: expected one of auto, rgb, grey, grey16, raw, got grey17", check("dataset.mode=grey17"))
        self.assertIn("dataset.exif_orientation: expected one of apply, ignore, got yes", check("dataset.exif_orientation=yes"))
        for transform in ("color_jitter: {brightness: 0.5}", "random_rotation: {degrees: 5}", "auto_augment", "gaussian_blur: {kernel_size: 3}"):
            name = transform.split(":")[0]
            self.assertIn(f"transform {name}: it needs 8-bit images, but dataset.mode is grey16; remove it, or set dataset.mode to rgb or grey",
                          check(f"dataset.train_transforms=[{transform}, resize: {{size: [8, 8]}}]"))
        self.assertIn("transform letterbox: it needs 8-bit images, but dataset.mode is grey16; remove it, or set its fill to 0",
                      check("dataset.train_transforms=[letterbox: {size: 8, fill: 114}]"))
        self.assertIn("transform normalize: mean has 3 values and std 3, but the images have 1 channel",
                      check("dataset.train_transforms=[resize: {size: [8, 8]}, normalize: {mean: [0.5, 0.5, 0.5], std: [1, 1, 1]}]"))
        self.assertIn("it is a 16-bit grey image, and all values above 255 would become white; train with dataset.mode: grey16",
                      self.refused("--config", config, "dataset.mode=rgb", "--run-dir", self.run_dir))
        self.assertIn("--raw: images of dataset.mode: grey16 are always packed as their original files; remove this option",
                      self.refused("data", "pack", "--config", config, "--output", self.folder / "pack", "--raw"))

    def test_files_of_another_depth_are_named(self):
        files = [(".png", Image.fromarray(RNG.integers(0, 65536, (9, 8), dtype=np.uint16))), (".png", Image.fromarray(np.zeros((9, 8), np.uint8)))]
        process = trainer("data", "check", "--config", self.configured(files))
        self.assertEqual(process.returncode, 3, process.err)
        self.assertEqual(process.out.count("it is not a 16-bit grey image (PNG, TIFF or PGM), which dataset.mode: grey16 requires"), 2)

    def test_channels_of_another_number_are_named(self):
        files = [(".npy", np.zeros((9, 8, 5))), (".npy", np.zeros((9, 8, 4))), (".npy", np.full((9, 8, 5), np.nan))]
        process = trainer("data", "check", "--config", self.configured(files))
        self.assertEqual(process.returncode, 3, process.err)
        self.assertEqual(process.out.count("it has 4 channels, but the first readable image of the data set has 5"), 2)
        self.assertEqual(process.out.count("it has values that are not finite"), 2)

    def test_packed_images_keep_their_depth(self):
        files = [(".png", Image.fromarray(RNG.integers(0, 65536, (9, 8), dtype=np.uint16))) for _ in range(6)]
        config = self.configured(files)
        self.ran("data", "pack", "--config", config, "--output", self.folder / "pack")
        experiment = json.loads(config.read_text())
        for name in "root", "name":
            experiment["dataset"].pop(name)
        experiment["dataset"] |= {"name": "lmdb", "root": str(self.folder / "pack")}
        (self.folder / "p.yaml").write_text(json.dumps(experiment))
        for name in "x", "p":
            self.ran("--config", self.folder / f"{name}.yaml", "--run-dir", self.folder / name)
        self.assertEqual(*(losses(self.folder / name) for name in "xp"))

    def test_exports_take_the_network_alone(self):
        files = [(".png", Image.fromarray(RNG.integers(0, 65536, (9, 8), dtype=np.uint16))) for _ in range(6)]
        self.ran("--config", self.configured(files), "--run-dir", self.run_dir)
        target = ["export", "--checkpoint", self.run_dir, "--format", "onnx", "--output", self.folder / "x.onnx"]
        self.assertIn("--input images: this input has 8 bits per channel, but the network takes images of dataset.mode: grey16; choose --input tensor",
                      self.refused(*target, "--input", "images"))
        exported = self.ran(*target)
        self.assertIn("input images: floating-point [batch, 1, 8, 8]", exported.out)
        self.ran("export", "--checkpoint", self.run_dir, "--format", "torchscript", "--output", self.folder / "x.pt")
        self.assertIn("its network takes images of dataset.mode: grey16, but this command compares only images of 8 bits",
                      self.refused("verify-export", "--checkpoint", self.run_dir, self.folder / "x.pt"))
        grid = self.ran("predict", "--checkpoint", self.run_dir, "--save-grid", self.folder / "grid.png", self.folder / "data" / "a")
        self.assertEqual(grid.out.count("00.png"), 1)
        self.ran("report", self.run_dir, "--output", self.folder / "report.html")

    def test_heat_maps_of_many_channels(self):
        self.ran("--config", self.configured([(".npy", RNG.normal(size=(9, 8, 500)).astype(np.float32)) for _ in range(6)]), "--run-dir", self.run_dir,
                 "model={name: layers, layers: [conv_norm: {channels: 4}, global_avg_pool, linear]}")
        self.ran("predict", "--checkpoint", self.run_dir, "--heatmap", self.folder / "heat", self.folder / "data" / "a")
        with Image.open(self.folder / "heat" / "00.png") as picture:
            self.assertEqual(picture.size, (144, 144))

    def test_init_proposes_the_mode_and_measures(self):
        values = RNG.integers(1000, 4096, (12, 70, 90), dtype=np.uint16)
        self.configured([(".png", Image.fromarray(image)) for image in values])
        output = self.folder / "new.yaml"
        self.ran("init", "--data", self.folder / "data", "--output", output)
        text = output.read_text()
        self.assertIn("mode: grey16", text)
        self.assertIn("16 bits of grey", text)
        # `trainer init` writes these validation transforms: the shorter edge resized to 73 pixels, then the central 64 x 64.
        self.assertIn("resize: {size: 73}", text)
        middle = np.stack([np.asarray(Image.fromarray(image).resize((93, 73), Image.Resampling.BILINEAR))[4:68, 14:78] for image in values]) / 65535
        # `trainer init` writes four digits.
        self.assertAlmostEqual(float(text.split("mean: [")[1].split("]")[0]) / middle.mean(), 1, delta=5e-4)
        self.assertAlmostEqual(float(text.split("std: [")[1].split("]")[0]) / middle.std(), 1, delta=5e-4)
        self.assertEqual(trainer("validate", "--config", output).returncode, 0)

    def test_init_proposes_no_weights_for_other_channels(self):
        self.configured([(".npy", RNG.integers(0, 256, (160, 160, 5), dtype=np.uint8)) for _ in range(6)])
        output = self.folder / "new.yaml"
        self.ran("init", "--data", self.folder / "data", "--output", output)
        self.assertIn("random weights, because published weights are for images with 3 channels.\nmodel: {name: resnet18}\n", output.read_text())

    def test_another_kind_of_values_is_refused(self):
        files = [(".npy", RNG.integers(0, 65536, (9, 8, 2), dtype=np.uint16)), (".npy", RNG.normal(size=(9, 8, 2)).astype(np.float32))]
        process = trainer("data", "check", "--config", self.configured(files))
        self.assertEqual(process.returncode, 3, process.err)
        self.assertEqual(process.out.count("it has signed or floating-point values, but the first readable image of the data set has values of 16 bits; save all images with the same type of values"), 2)

    def test_arrays_that_cannot_be_read_are_named(self):
        config = self.configured([(".npy", np.zeros((9, 8), np.int64))])
        self.assertIn("a/00.npy: its array has the unsupported data type <i8; save it as uint8, uint16, int16, float32 or float64", self.refused("--config", config, "--run-dir", self.run_dir))

    def test_evaluation_reads_files_as_the_training_did(self):
        files = [(".png", Image.fromarray(RNG.integers(0, 65536, (9, 8), dtype=np.uint16))) for _ in range(6)]
        config = self.configured(files)
        self.ran("--config", config, "--run-dir", self.run_dir)
        for name in "ab":
            (self.folder / "other" / name).mkdir(parents=True)
            np.save(self.folder / "other" / name / "0.npy", np.zeros((9, 8), np.float32))
            Image.fromarray(np.zeros((9, 8), np.uint8)).save(self.folder / "other" / name / "1.png")
        self.assertIn("it is not a 16-bit grey image", self.refused("eval", "--checkpoint", self.run_dir, "--data", self.folder / "other"))
        # A run is not resumed with another dataset.exif_orientation.
        self.assertRegex(self.refused("--config", config, "--run-dir", self.run_dir, "--resume", "auto", "training.epochs=3", "dataset.exif_orientation=ignore"),
                         r"another configuration \(dataset.exif_orientation: ignore, not apply")

    def test_a_crop_without_pixels(self):
        files = [(".png", Image.fromarray(RNG.integers(0, 65536, (9, 8), dtype=np.uint16))) for _ in range(6)]
        transforms = [{"resize": {"size": [8, 8]}}, {"random_crop": {"size": 8, "padding": 100}}]
        for keys in ([], ["dataset.mode=grey16"]):
            self.ran("--config", self.configured(files, transforms), "--run-dir", self.folder / f"run{len(keys)}", "training.epochs=8", *keys)
        files = [(".png", Image.fromarray(RNG.integers(0, 256, (9, 8), dtype=np.uint8))) for _ in range(6)]
        for mode in ("rgb", "grey"):
            self.ran("--config", self.configured(files, transforms), "--run-dir", self.folder / mode, "training.epochs=8", f"dataset.mode={mode}")

    def test_orientations_are_noticed(self):
        exif = Image.Exif()
        exif[274] = 6
        Image.new("RGB", (9, 8)).save(self.folder / "turned.jpg", exif=exif)
        config = self.configured([(".jpg", (self.folder / "turned.jpg").read_bytes())] * 4)
        self.assertRegex(trainer("--config", config, "--run-dir", self.folder / "a").err,
                         "6 of 6 images have an EXIF orientation and are turned upright, unlike in torchvision's ImageFolder")
        self.assertRegex(trainer("--config", config, "--run-dir", self.folder / "b", "dataset.exif_orientation=ignore").err,
                         "6 of 6 images have an EXIF orientation, which is ignored as in torchvision")


if __name__ == "__main__":
    unittest.main()
