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
from program import FolderCase, trainer  # noqa: E402

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


@unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
class ImageDepthsTest(FolderCase):
    def inputs(self, files, transforms, mode="auto", **keys):
        """What a network that was trained on these files gets of each of them: float32 [channels, height, width]."""
        folder = self.folder / "data" / "a"
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        paths = []
        for i, (ending, content) in enumerate(files):
            paths.append(folder / f"{i:02}{ending}")
            if isinstance(content, bytes):
                paths[-1].write_bytes(content)
            elif isinstance(content, Image.Image):
                content.save(paths[-1])
            else:
                np.save(paths[-1], content)
        config = {"experiment": "x", "model": {"name": "layers", "layers": ["flatten", {"linear": {"name": "head"}}]},
                  "dataset": {"name": "image_folder", "root": str(self.folder / "data"), "mode": mode, "train_transforms": transforms,
                              "validation_transforms": transforms, "validation_split": 0, **keys},
                  "dataloader": {"batch_size": 1}, "optimizer": {"name": "sgd", "lr": 0.01}, "training": {"epochs": 1}, "validation": {"every_epochs": None},
                  "runtime": {"device": "cpu"}, "amp": {"enabled": False}, "logging": {"tensorboard": False}}
        (self.folder / "x.yaml").write_text(json.dumps(config))
        run = self.folder / f"run_{len(list(self.folder.iterdir()))}"
        trained = trainer("--config", self.folder / "x.yaml", "--run-dir", run)
        self.assertEqual(trained.returncode, 0, trained.err)
        features = self.folder / "features.npy"
        features.unlink(missing_ok=True)
        predicted = trainer("predict", "--checkpoint", run, "--embeddings", features, *paths)
        self.assertEqual(predicted.returncode, 0, predicted.err)
        return np.load(features)

    def assert_inputs(self, files, expected, transforms=(), **keys):
        """`expected`: arrays [height, width, channels] of what reaches the network."""
        found = self.inputs(files, list(transforms) or [{"center_crop": {"size": list(expected[0].shape[:2])}}], **keys)
        for row, image in zip(found, expected, strict=True):
            np.testing.assert_array_equal(row, image.astype(np.float32).transpose(2, 0, 1).reshape(-1))

    def test_16_bits_of_grey(self):
        grey = [RNG.integers(0, 65536, (17, 11), dtype=np.uint16) for _ in range(6)]
        image = [Image.fromarray(values) for values in grey]
        self.assertEqual(image[0].mode, "I;16")
        # As PGM, Pillow writes this mode only with its largest value.
        pgm = b"P5\n11 17\n65535\n" + grey[2].astype(">u2").tobytes()
        small = b"P2\n11 17\n1000\n" + " ".join(str(int(value)) for value in (grey[5] % 1001).flat).encode()
        self.assert_inputs([(".png", image[0]), (".tif", image[1]), (".pgm", pgm), (".tif", tiff(grey[3][..., None], big_endian=True)),
                            (".tif", tiff(grey[4][..., None], tile=16)), (".pgm", small)],
                           [values[..., None] / np.float32(65535) for values in grey[:5]] + [np.rint((grey[5] % 1001) / 1000 * 65535).astype(np.float32)[..., None] / np.float32(65535)])

    def test_16_bits_of_grey_are_those_of_pillow(self):
        values = RNG.integers(0, 65536, (17, 11), dtype=np.uint16)
        Image.fromarray(values).save(self.folder / "x.png")
        with Image.open(self.folder / "x.png") as image:
            expected = np.asarray(image)
        self.assert_inputs([(".png", (self.folder / "x.png").read_bytes())], [expected[..., None] / np.float32(65535)], mode="grey16")

    def test_resized_and_normalised(self):
        mean, std = np.float32(0.45), np.float32(0.2)
        sizes = ((40, 23), (9, 7), (61, 12), (12, 30), (200, 31))
        for name, kind in FILTERS.items():
            resize = [{"resize": {"size": [SIZE, SIZE], "interpolation": name}}, {"normalize": {"mean": [float(mean)], "std": [float(std)]}}]
            # Pillow's results above 65535 wrap around in their lower byte, so that there are none here.
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


if __name__ == "__main__":
    unittest.main()
