"""The symbols that libtrainer.so exports are the recorded ones, because programs that were built with the library need them. A change that
removes or changes a symbol needs a new minor version of the project. `test_library.py --write` records the symbols."""

import os
import pathlib
import subprocess
import sys
import unittest

LIBRARY = pathlib.Path(os.environ["TRAINER_BINARY"]).with_name("libtrainer.so")
RECORDED = pathlib.Path(__file__).resolve().parents[1] / "golden" / "exported_symbols.txt"


def exported():
    lines = subprocess.run(["nm", "--dynamic", "--demangle", "--defined-only", LIBRARY], check=True, capture_output=True, text=True).stdout
    symbols = (line.split(maxsplit=2)[1:] for line in lines.splitlines())
    # Only functions that are not inline are recorded, because a compiler may omit inline ones.
    return sorted({name for kind, name in symbols if kind == "T"})


class LibraryTest(unittest.TestCase):
    maxDiff = None

    def test_exported_symbols_are_the_recorded_ones(self):
        self.assertEqual(exported(), RECORDED.read_text().splitlines())


if __name__ == "__main__":
    if "--write" in sys.argv:
        RECORDED.write_text("\n".join(exported()) + "\n")
    else:
        unittest.main()
