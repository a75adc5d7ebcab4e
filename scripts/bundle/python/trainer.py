"""Starts the program trainer, which is in the folder trainer_program beside this module, with the LibTorch of the package torch."""

import importlib.util
import os
import pathlib
import sys

PROGRAM = pathlib.Path(__file__).resolve().parent / "trainer_program"


def torch_folder():
    """The folder of the package torch, which is not imported."""
    package = importlib.util.find_spec("torch")
    if package is None or not package.submodule_search_locations:
        raise ImportError("trainer needs the package torch; install it in this environment")
    return package.submodule_search_locations[0]


def main():
    if not os.environ.get("TRAINER_TORCH_DIR"):
        os.environ["TRAINER_TORCH_DIR"] = torch_folder()
    start = PROGRAM / "bin" / "trainer"
    os.execv(start, [str(start), *sys.argv[1:]])


if __name__ == "__main__":
    main()
