"""The checksum of pixels and numbers in the golden files."""

import functools


@functools.cache
def fnv1a(data):
    """FNV-1a of 64 bits, in hexadecimal digits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"
