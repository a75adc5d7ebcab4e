"""Compares the program's GradScaler and optimizers with those of Python on the same LibTorch.

The program parity_grad_scaler of the build reads {"cases": [...]} on stdin and prints the same object with trace and parameters added to
each case; tests/golden/make_grad_scaler.py explains their meaning and the tolerances.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import make_grad_scaler

PROGRAM = pathlib.Path(os.environ["TRAINER_BINARY"]).with_name("parity_grad_scaler")


class GradScalerTest(unittest.TestCase):
    def test_traces(self):
        cases = make_grad_scaler.cases()
        output = subprocess.run([PROGRAM], input=json.dumps({"cases": cases}), stdout=subprocess.PIPE, text=True, check=True).stdout
        actual_cases = json.loads(output)["cases"]
        self.assertEqual(len(actual_cases), len(cases))
        for case, actual in zip(cases, actual_cases):
            expected = make_grad_scaler.train(case)
            with self.subTest(case["name"]):
                self.assertEqual([row[:3] for row in actual["trace"]], [row[:3] for row in expected["trace"]])
                for step, (got, wanted) in enumerate(zip(actual["trace"], expected["trace"])):
                    for a, b in zip(got[3:], wanted[3:]):
                        self.assertLessEqual(abs(a - b), 1e-6 * b, f"step {step}")
                self.assertEqual(len(actual["parameters"]), len(expected["parameters"]))
                largest = max(map(abs, expected["parameters"]))
                for a, b in zip(actual["parameters"], expected["parameters"]):
                    self.assertLessEqual(abs(a - b), 1e-6 * largest)


if __name__ == "__main__":
    unittest.main()
