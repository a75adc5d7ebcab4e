"""Writes images/: small image files, and for each one NAME.ppm with its pixels as Pillow reads them, in RGB or 16 bits of grey; jpegs/:
larger JPEG files, which are decoded in parts; and refused_images/: files in forms that Pillow reads and the program refuses with a message.
For tests/unit/data/image_file_test.cpp.

This script itself assembles files that Pillow cannot write, such as interlaced PNG, some bit depths, some BMP, and
tiles and planes of TIFF.
"""

import pathlib
import struct
import warnings
import zlib

import numpy
from PIL import Image

FOLDER = pathlib.Path(__file__).with_name("images")
WIDTH, HEIGHT = 33, 21
REFUSED = FOLDER.with_name("refused_images")
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
    (FOLDER / name).write_bytes(b"BM" + struct.pack("<IHHI", 54 + len(between) + len(data), 0, 0, offset) + header + between + data)


def save_tiff(path, tags, blocks, order="<", tiles=False):
    """`tags`: numbers, or lists of them, of 16 bits. `blocks`: the content of the strips or tiles."""
    entries = {tag: ("H", numpy.atleast_1d(value).tolist()) for tag, value in tags.items()}
    offsets_tag, counts_tag = (324, 325) if tiles else (273, 279)
    entries[counts_tag] = ("I", [len(block) for block in blocks])
    entries[offsets_tag] = ("I", [0] * len(blocks))
    directory_bytes = 8 + 2 + 12 * len(entries) + 4
    behind = sum(struct.calcsize(f"{len(values)}{kind}") for kind, values in entries.values())
    ends = numpy.cumsum([directory_bytes + behind] + [len(block) for block in blocks])
    entries[offsets_tag] = ("I", ends[:-1].tolist())
    directory, long_values = b"", b""
    for tag, (kind, values) in sorted(entries.items()):
        packed = struct.pack(f"{order}{len(values)}{kind}", *values)
        field = packed.ljust(4, b"\0") if len(packed) <= 4 else struct.pack(order + "I", directory_bytes + len(long_values))
        long_values += packed if len(packed) > 4 else b""
        directory += struct.pack(order + "HHI", tag, 3 if kind == "H" else 4, len(values)) + field
    header = {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "HIH", 42, 8, len(entries))
    path.write_bytes(header + directory + bytes(4) + long_values.ljust(behind, b"\0") + b"".join(blocks))


def packed(values, bits):
    """The rows of [height][width] values of `bits` bits, each row padded to whole bytes."""
    each = numpy.unpackbits(values.astype(numpy.uint8)[..., None], axis=2)[..., 8 - bits :]
    return numpy.packbits(each.reshape(len(values), -1), axis=1).tobytes()


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
    # The same data, with another colour transform in the Adobe marker.
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
    save_png("grey_16_bits.png", pixels(1, bits=16), 16, 0)
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
    save_bmp("from_the_top.bmp", 24, 0, padded(row.tobytes() for row in pixels(3)), height=-HEIGHT)
    save_bmp("four_bytes.bmp", 32, 0, pixels(4).tobytes())
    save_bmp("masks_32_bits.bmp", 32, 3, pixels(4).tobytes(), struct.pack("<III", 0xFF0000, 0xFF00, 0xFF))
    version_5 = struct.pack("<IiiHHIIiiII", 124, WIDTH, HEIGHT, 1, 32, 3, 0, 0, 0, 0, 0) + struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF << 24)
    data = pixels(4).tobytes()
    (FOLDER / "header_of_version_5.bmp").write_bytes(
        b"BM" + struct.pack("<IHHI", 138 + len(data), 0, 0, 138) + version_5.ljust(124, b"\0") + data)


def make_pnms():
    small = pixels(3, 19, 13)
    save("rgb.pnm", image("RGB", 19, 13))
    save("grey.pnm", image("L", 19, 13))

    def write(name, header, data):
        (FOLDER / name).write_bytes(header.encode() + data)

    grey = small[..., :1].astype(numpy.uint16)
    for maximum in 1, 15, 100, 254:
        write(f"grey_maximum_{maximum}.pnm", f"P5\n19 13\n{maximum}\n", (grey * maximum // 255).astype(numpy.uint8).tobytes())
        write(f"rgb_maximum_{maximum}.pnm", f"P6 19 13 {maximum}\n", (small * float(maximum) // 255).astype(numpy.uint8).tobytes())
    for maximum in 256, 1023, 65535:
        write(f"grey_maximum_{maximum}.pnm", f"P5\n# 13 rows\n19 13\n{maximum}\n", (grey * float(maximum) // 255).astype(">u2").tobytes())
        write(f"rgb_maximum_{maximum}.pnm", f"P6\n19 13\n{maximum}\n", (pixels(3, 19, 13, bits=16) * float(maximum) // 65535).astype(">u2").tobytes())
    write("values_above_the_maximum.pnm", "P5 3 1 100\n", bytes([0, 100, 200]))


def make_tiffs():
    small, grey = image("RGB", 19, 13), image("L", 19, 13)
    save("rgb.tif", small)
    save("lzw.tif", small, compression="tiff_lzw")
    save("lzw_differences.tif", small, compression="tiff_lzw", tiffinfo={317: 2})
    for compression in "packbits", "tiff_deflate", "tiff_adobe_deflate":
        save(f"{compression.removeprefix('tiff_')}.tif", small, compression=compression)
    for mode in "RGB", "L", "CMYK":
        save(f"jpeg_{mode.lower()}.tif", image(mode), compression="jpeg", quality=80)
    for compression in "tiff_ccitt", "group3", "group4":
        save(f"one_bit_{compression.removeprefix('tiff_')}.tif", grey.convert("1"), compression=compression)
    save("one_bit.tif", grey.convert("1"))
    save("grey.tif", grey)
    save("grey_alpha.tif", image("LA", 19, 13))
    save("palette.tif", small.quantize(40))
    save("palette_alpha.tif", image("RGBA", 19, 13).quantize(40).convert("PA"))
    save("rgba.tif", image("RGBA", 19, 13))
    save("rgbx.tif", image("RGBA", 19, 13).convert("RGBX"))
    save("cmyk.tif", image("CMYK", 19, 13))
    save("big_tiff.tif", small, big_tiff=True)
    for orientation in range(2, 9):
        save(f"orientation_{orientation}.tif", image("RGB", 5, 3), tiffinfo={274: orientation})

    def write(name, photometric, bits, values, order="<", more=None):
        height, width, samples = values.shape
        tags = {256: width, 257: height, 258: [bits] * samples, 262: photometric, 277: samples, 278: height} | (more or {})
        kind = f"{order}u{max(bits, 8) // 8}"
        data = packed(values[..., 0], bits) if bits < 8 else values.astype(kind).tobytes()
        save_tiff(FOLDER / name, tags, [data], order)

    for bits in 1, 2, 4, 8:
        values = pixels(1, 19, 13, bits=bits)
        write(f"grey_{bits}_bits_zero_is_white.tif", 0, bits, values)
        write(f"grey_{bits}_bits_big_endian.tif", 1, bits, values, ">")
        if bits < 8:
            palette = (numpy.arange(3 * 2**bits) * 65535 // (3 * 2**bits)).astype(int)
            write(f"palette_{bits}_bits.tif", 3, bits, values, more={320: palette})
    grey_16 = pixels(1, 19, 13, bits=16)
    write("grey_16_bits.tif", 1, 16, grey_16)
    write("grey_16_bits_big_endian.tif", 1, 16, grey_16, ">")
    rgb_16 = pixels(3, 19, 13, bits=16)
    write("rgb_16_bits.tif", 2, 16, rgb_16)
    write("rgb_16_bits_big_endian.tif", 2, 16, rgb_16, ">")
    four, four_16 = pixels(4, 19, 13), pixels(4, 19, 13, bits=16)
    write("cmyk_16_bits.tif", 5, 16, four_16)
    for name, kind in ("unknown", 0), ("multiplied", 1), ("alpha", 2):
        write(f"rgb_{name}.tif", 2, 8, four, more={338: kind})
        write(f"rgb_{name}_16_bits.tif", 2, 16, four_16, more={338: kind})
    write("rgb_alpha_without_a_tag.tif", 2, 8, four)
    write("rgb_three_unknown.tif", 2, 8, pixels(6, 19, 13), more={338: [0, 0, 0]})
    write("cmyk_unknown.tif", 5, 8, pixels(5, 19, 13), more={338: 0})
    write("reversed_bits.tif", 1, 8, pixels(1, 19, 13), more={266: 2})
    write("grey_unknown.tif", 1, 8, pixels(2, 19, 13), more={338: 0})
    rgb = pixels(3, 19, 13)
    tags = {256: 19, 257: 13, 258: [8, 8, 8], 262: 2, 277: 3}
    save_tiff(FOLDER / "strips.tif", tags | {278: 5}, [rgb[top : top + 5].tobytes() for top in range(0, 13, 5)])
    planes = numpy.moveaxis(rgb, 2, 0)
    save_tiff(FOLDER / "planes.tif", tags | {278: 5, 284: 2}, [plane[top : top + 5].tobytes() for plane in planes for top in range(0, 13, 5)])
    large = pixels(3)
    filled = numpy.pad(large, ((0, 32 - HEIGHT), (0, 48 - WIDTH), (0, 0)))
    tiles = [filled[y : y + 16, x : x + 16] for y in range(0, 32, 16) for x in range(0, 48, 16)]
    tags |= {256: WIDTH, 257: HEIGHT, 322: 16, 323: 16}
    save_tiff(FOLDER / "tiles.tif", tags, [tile.tobytes() for tile in tiles], tiles=True)
    save_tiff(FOLDER / "tiles_deflate.tif", tags | {259: 8}, [zlib.compress(tile.tobytes()) for tile in tiles], tiles=True)
    planes = [tile[..., c].tobytes() for c in range(3) for tile in tiles]
    save_tiff(FOLDER / "tiles_planes.tif", tags | {284: 2}, planes, tiles=True)

    REFUSED.mkdir(exist_ok=True)
    save("../refused_images/lab.tif", Image.fromarray(rgb, "LAB"))
    save("../refused_images/ycbcr.tif", small.convert("YCbCr"))
    save("../refused_images/float.tif", Image.fromarray(rgb[..., 0].astype(numpy.float32)))
    save("../refused_images/signed_32_bits.tif", Image.fromarray(rgb[..., 0].astype(numpy.int32)))
    save("../refused_images/lzma.tif", small, compression="lzma")
    save_tiff(REFUSED / "planes_16_bits.tif", {256: 19, 257: 13, 258: [16] * 3, 262: 2, 277: 3, 278: 13, 284: 2},
              [rgb_16[..., c].astype("<u2").tobytes() for c in range(3)])
    progressive = (FOLDER / "progressive_grey.jpg").read_bytes()
    save_tiff(REFUSED / "progressive_jpeg.tif", {256: WIDTH, 257: HEIGHT, 258: 8, 259: 7, 262: 1, 277: 1, 278: HEIGHT}, [progressive])
    save("../refused_images/grey.gif", grey)
    save("../refused_images/rgb.avif", small)
    save("../refused_images/rgb.jp2", small)
    save("../refused_images/float.pfm", Image.fromarray(rgb[..., 0].astype(numpy.float32)))
    save("../refused_images/animation.webp", small, save_all=True, append_images=[small.rotate(180)])


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
make_pnms()
make_tiffs()
make_larger_jpegs()
for path in sorted(FOLDER.iterdir()):
    if path.suffix != ".ppm":
        golden = FOLDER / (path.name + ".ppm")
        with Image.open(path) as picture, warnings.catch_warnings(action="ignore"):
            if picture.mode in ("I", "I;16", "I;16B"):
                golden.write_bytes(f"P5\n{picture.width} {picture.height}\n65535\n".encode() + numpy.asarray(picture).astype(">u2").tobytes())
            else:
                picture.convert("RGB").save(golden)
