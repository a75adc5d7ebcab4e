"""Compares the program's losses with those of Python on the same LibTorch.

TRAINER_PARITY_LOSSES names the program build/<preset>/bin/parity_losses. It reads {"cases": [...]} on stdin and prints the same object
with losses, sum and sum_of_squares added to each case; tests/golden/make_losses.py explains their meaning and the tolerances.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import make_losses
import torch


# Factors by which the rounding errors of the algorithms exceed those of the direct one (docs/performance.md).
ROUNDING = {"direct": 1, "winograd2": 1, "winograd4": 6}


def fast_cases():
    """Cases in channels_last with fused operators and each convolution algorithm. They are compared with Python's losses of the same cases
    in contiguous tensors. The tolerance is that of these cases or, if larger, four times the largest change of Python's losses in
    channels_last, with one or two threads, or with images that differ by a rounding; it is multiplied by ROUNDING. A single rounding
    changes the fifth loss of resnet18 by 7e-5 to 3e-4, depending on the seed, so four seeds are used. AdamW is skipped, because its first
    updates are the signs of the gradients, even of gradients that consist only of rounding errors."""
    for case in make_losses.cases("float32"):
        if case["network"] != "demo_conv" and case["optimizer"] == "sgd":
            for convolution in ROUNDING:
                yield case, convolution


class LossesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = os.environ["TRAINER_PARITY_LOSSES"]
        cases = make_losses.cases("float64") + make_losses.cases("float32")
        cases += [{**case, "convolution": convolution} for case, convolution in fast_cases()]
        process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process.stdin.write(json.dumps({"cases": cases}))
        process.stdin.close()
        # float64 is slow, so the program and Python compute at the same time, with one thread each. In float32, Python needs two threads
        # for its tolerance, so it computes after the program has ended.
        cls.expected = [make_losses.with_tolerance(case) for case in make_losses.cases("float64")]
        output = process.stdout.read()
        process.stdout.close()
        if process.wait() != 0:
            raise RuntimeError(f"{program} ended with status {process.returncode}")
        float32 = [make_losses.with_tolerance(case) for case in make_losses.cases("float32")]
        cls.expected += float32
        tolerances = {}
        for case, convolution in fast_cases():
            (result,) = (result for result in float32 if case.items() <= result.items())
            if case["network"] not in tolerances:
                in_layout = [make_losses.train(case, threads, torch.channels_last) for threads in (1, 2)]
                in_layout += [make_losses.train(case, 2, torch.channels_last, nudge=seed) for seed in range(4)]
                tolerances[case["network"]] = max(result["tolerance"], *(make_losses.tolerance_between(result, other) for other in in_layout))
            cls.expected.append({**result, "convolution": convolution, "tolerance": tolerances[case["network"]] * ROUNDING[convolution]})
        cls.actual = json.loads(output)["cases"]

    def check(self, dtype, checksums, is_fast=False):
        self.assertEqual(len(self.actual), len(self.expected))
        for expected, actual in zip(self.expected, self.actual):
            if expected["dtype"] != dtype or ("convolution" in expected) != is_fast:
                continue
            case = {key: value for key, value in expected.items() if key not in ("losses", "sum", "sum_of_squares", "tolerance")}
            with self.subTest(**case):
                self.assertEqual({key: actual[key] for key in case}, case)
                self.assertEqual(len(actual["losses"]), expected["steps"])
                wanted = expected["losses"] + [expected[name] for name in checksums]
                got = actual["losses"] + [actual[name] for name in checksums]
                for index, (a, b) in enumerate(zip(got, wanted)):
                    self.assertLessEqual(abs(a - b), expected["tolerance"] * abs(b), f"number {index}: {a!r}, Python {b!r}")

    def test_float64(self):
        self.check("float64", ["sum", "sum_of_squares"])

    def test_float32(self):
        self.check("float32", ["sum_of_squares"])

    def test_float32_with_each_algorithm_of_convolutions(self):
        self.check("float32", ["sum_of_squares"], is_fast=True)


if __name__ == "__main__":
    unittest.main()
