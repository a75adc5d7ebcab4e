"""Writes images/: small image files, and beside each one NAME.ppm with its pixels as Pillow reads them; and jpegs/: larger JPEG files, of
which parts are decoded. For tests/unit/input/image_file_test.cpp.

What Pillow cannot write (interlaced PNG, some bit depths, 16-bit and run-length encoded BMP) is put together here.
"""

import pathlib
import struct
import warnings
import zlib

import numpy
from PIL import Image

FOLDER = pathlib.Path(__file__).with_name("images")
WIDTH, HEIGHT = 33, 21
ADAM7 = (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)


def pixels(channels, width=WIDTH, height=HEIGHT, bits=8):
    """Smooth colours, a bright rectangle and a line, as [height][width][channels]."""
    y, x = numpy.mgrid[0:height, 0:width]
    values = [0.5 + 0.5 * numpy.sin(0.11 * (c + 1) * x + 0.17 * y + c) for c in range(channels)]
    image = numpy.stack(values, -1)
    image[height // 4 : height // 2, width // 3 : width // 2] = numpy.linspace(1, 0, channels)
    image[numpy.arange(height), numpy.arange(height) * width // height] = 0.05
    return numpy.round(image * (2**bits - 1)).astype(numpy.uint16 if bits > 8 else numpy.uint8)


def image(mode, width=WIDTH, height=HEIGHT):
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    return Image.fromarray(pixels(channels, width, height).squeeze(-1) if channels == 1 else pixels(channels, width, height), mode)


def save(name, picture, **options):
    picture.save(FOLDER / name, **options)


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def scanlines(values, bits):
    """The rows of a PNG, each after the number of its filter (none)."""
    rows = b""
    for row in values:
        if bits == 16:
            packed = row.astype(">u2").tobytes()
        else:
            each = numpy.unpackbits(row.astype(numpy.uint8).reshape(-1, 1), axis=1)[:, 8 - bits :]
            packed = numpy.packbits(each.reshape(-1)).tobytes()
        rows += b"\0" + packed
    return rows


def save_png(name, values, bits, colour_type, interlaced=False, chunks=b""):
    height, width = values.shape[:2]
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    data = b"".join(scanlines(values[y::dy, x::dx], bits) for x, y, dx, dy in passes)
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, int(interlaced))
    content = chunk(b"IHDR", header) + chunks + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")
    (FOLDER / name).write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def save_bmp(name, bits, compression, data, between=b"", height=HEIGHT):
    offset = 54 + len(between)
    header = struct.pack("<IiiHHIIiiII", 40, WIDTH, height, 1, bits, compression, len(data), 0, 0, 0, 0)
    (FOLDER / name).write_bytes(b"BM" + struct.pack("<IHHI", offset + len(data), 0, 0, offset) + header + between + data)


def padded(rows):
    return b"".join(row + b"\0" * (-len(row) % 4) for row in rows)


def make_jpegs():
    rgb = image("RGB")
    for subsampling in "4:4:4", "4:2:2", "4:2:0":
        save(f"baseline_{subsampling.replace(':', '')}.jpg", rgb, quality=85, subsampling=subsampling)
    save("progressive.jpg", rgb, quality=80, progressive=True)
    save("progressive_grey.jpg", image("L"), quality=80, progressive=True)
    save("grey.jpg", image("L"), quality=90)
    save("colour_space_rgb.jpg", rgb, quality=85, keep_rgb=True)
    save("restarts.jpg", rgb, quality=85, restart_marker_blocks=1)
    for width, height in (1, 1), (7, 16), (17, 9), (16, 16):
        save(f"size_{width}x{height}.jpg", image("RGB", width, height), quality=75)
    turned = Image.Exif()
    turned[0x0112] = 6
    save("orientation_6.jpg", rgb, quality=85, exif=turned)
    save("cmyk.jpg", image("CMYK"), quality=85)
    # The same data, with another number for the colours in the part of Adobe.
    data = bytearray((FOLDER / "cmyk.jpg").read_bytes())
    data[data.index(b"Adobe") + 11] = 2
    (FOLDER / "ycck.jpg").write_bytes(data)
    data = (FOLDER / "baseline_420.jpg").read_bytes()
    (FOLDER / "more_after_end.jpg").write_bytes(data + b"more")
    start = data.index(b"\xff\xdb")
    (FOLDER / "more_between_parts.jpg").write_bytes(data[:start] + b"\0\1\2" + data[start:])


def make_pngs():
    rgb, grey = image("RGB"), image("L")
    for mode in "L", "LA", "RGB", "RGBA":
        save(f"mode_{mode.lower()}.png", image(mode))
    save("one_bit.png", grey.convert("1"))
    palette = rgb.quantize(40)
    save("palette.png", palette)
    save("palette_4_bits.png", rgb.quantize(11))
    save("palette_2_bits.png", rgb.quantize(4))
    save("palette_one_transparent.png", palette, transparency=3)
    save("palette_transparency.png", palette, transparency=bytes(range(0, 240, 6)))
    save("rgb_one_transparent.png", rgb, transparency=(255, 128, 0))
    turned = Image.Exif()
    turned[0x0112] = 6
    save("with_text.png", rgb, exif=turned, dpi=(72, 72), icc_profile=b"no profile")
    for bits in 2, 4:
        save_png(f"grey_{bits}_bits.png", pixels(1, bits=bits), bits, 0)
    # Dark, because Pillow makes every value above 255 white.
    save_png("grey_16_bits.png", pixels(1, bits=16) // 200, 16, 0)
    save_png("grey_alpha_16_bits.png", pixels(2, 19, 13, bits=16), 16, 4)
    save_png("rgb_16_bits.png", pixels(3, 19, 13, bits=16), 16, 2)
    save_png("rgba_16_bits.png", pixels(4, 19, 13, bits=16), 16, 6)
    save_png("interlaced.png", pixels(3), 8, 2, interlaced=True)
    save_png("interlaced_one_bit.png", pixels(1, bits=1), 1, 0, interlaced=True)
    save_png("interlaced_5x1.png", pixels(3, 5, 1), 8, 2, interlaced=True)
    save_png("gamma.png", pixels(3), 8, 2, chunks=chunk(b"gAMA", struct.pack(">I", 100000)) + chunk(b"sBIT", b"\5\6\5"))


def make_webps():
    for mode in "RGB", "RGBA":
        save(f"lossy_{mode.lower()}.webp", image(mode), quality=80)
        save(f"lossless_{mode.lower()}.webp", image(mode), lossless=True, exact=True)
    turned = Image.Exif()
    turned[0x0112] = 6
    save("orientation_6.webp", image("RGB"), quality=60, exif=turned)
    save("size_1x1.webp", image("RGB", 1, 1), quality=60)


def make_bmps():
    rgb, grey = image("RGB"), image("L")
    save("rgb.bmp", rgb)
    save("rgba.bmp", image("RGBA"))
    save("grey.bmp", grey)
    save("one_bit.bmp", grey.convert("1"))
    palette = rgb.quantize(16)
    save("palette.bmp", palette)
    colours = padded(bytes(palette.getpalette()[i : i + 3])[::-1] for i in range(0, 48, 3))
    indices = numpy.asarray(palette)[::-1]
    nibbles = (numpy.unpackbits(row.reshape(-1, 1), axis=1)[:, 4:].reshape(-1) for row in indices)
    save_bmp("palette_4_bits.bmp", 4, 0, padded(numpy.packbits(row).tobytes() for row in nibbles), colours)
    runs = b"".join(b"".join(bytes([1, index]) for index in row) + b"\0\0" for row in indices) + b"\0\1"
    save_bmp("run_lengths.bmp", 8, 1, runs, colours + b"\0" * (1024 - len(colours)))
    red, green, blue = (pixels(3)[::-1, :, c].astype(numpy.uint16) for c in range(3))
    rows = (red >> 3) << 10 | (green >> 3) << 5 | blue >> 3
    save_bmp("five_bits.bmp", 16, 0, padded(row.astype("<u2").tobytes() for row in rows))
    rows = (red >> 3) << 11 | (green >> 2) << 5 | blue >> 3
    save_bmp("five_six_five_bits.bmp", 16, 3, padded(row.astype("<u2").tobytes() for row in rows), struct.pack("<III", 0xF800, 0x7E0, 0x1F))
    save_bmp("from_the_top.bmp", 24, 0, padded(row.tobytes() for row in pixels(3)), height=-HEIGHT)
    save_bmp("four_bytes.bmp", 32, 0, pixels(4).tobytes())
    core = struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, 24)
    data = padded(row.tobytes() for row in pixels(3))
    (FOLDER / "short_header.bmp").write_bytes(b"BM" + struct.pack("<IHHI", 26 + len(data), 0, 0, 26) + core + data)


def make_others():
    small = image("RGB", 19, 13)
    save("rgb.pnm", small)
    save("grey.pnm", image("L", 19, 13))
    save("rgb.tif", small)
    save("lzw.tif", small, compression="tiff_lzw")


def make_larger_jpegs():
    folder = FOLDER.with_name("jpegs")
    folder.mkdir(exist_ok=True)
    rgb = image("RGB", 157, 131)
    for name, options in {
        "420": {"subsampling": "4:2:0"},
        "422": {"subsampling": "4:2:2"},
        "444": {"subsampling": "4:4:4"},
        "progressive": {"subsampling": "4:2:0", "progressive": True},
        "restarts": {"subsampling": "4:2:0", "restart_marker_blocks": 3},
    }.items():
        rgb.save(folder / f"{name}.jpg", quality=60, **options)
    image("L", 157, 131).save(folder / "grey.jpg", quality=60)
    image("CMYK", 157, 131).save(folder / "cmyk.jpg", quality=60)


FOLDER.mkdir(exist_ok=True)
make_jpegs()
make_pngs()
make_webps()
make_bmps()
make_others()
make_larger_jpegs()
for path in sorted(FOLDER.iterdir()):
    if path.suffix != ".ppm":
        with Image.open(path) as picture, warnings.catch_warnings(action="ignore"):
            picture.convert("RGB").save(FOLDER / (path.name + ".ppm"))
