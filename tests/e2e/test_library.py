"""The symbols that libtrainer.so exports are the recorded ones, because programs that were built with the library need them. A change that
removes or changes a symbol needs a new minor version of the project. `test_library.py --write` records the symbols."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

LIBRARY = pathlib.Path(os.environ["TRAINER_BINARY"]).with_name("libtrainer.so")
HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include/trainer"
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

    def test_headers_that_name_an_error_declare_it(self):
        for header in HEADERS.glob("*.h"):
            text = header.read_text()
            if re.search(r"\b(Usage|Data|Checkpoint|Peer|Agreed|Option)Error\b", text) and header.name != "error.h":
                self.assertIn('#include "trainer/error.h"\n', text, header.name)


if __name__ == "__main__":
    if "--write" in sys.argv:
        RECORDED.write_text("\n".join(exported()) + "\n")
    else:
        unittest.main()
