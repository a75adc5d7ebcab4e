"""Runs the tests of a script two at a time, each in its own process. For tests that wait for time-outs most of the time."""

import concurrent.futures
import subprocess
import sys
import unittest


def run_one(name):
    """Returns whether the test passed."""
    print(f"{name} begins", flush=True)
    ended = subprocess.run([sys.executable, sys.argv[0], name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"{ended.stdout}{name} ends with exit code {ended.returncode}", flush=True)
    return ended.returncode == 0


def main():
    """Replaces unittest.main(), which it calls if there are arguments."""
    if len(sys.argv) > 1:
        unittest.main(verbosity=2)
    cases = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    names = [test.id().removeprefix("__main__.") for case in cases for test in case]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        sys.exit(0 if all(list(pool.map(run_one, names))) else 1)
