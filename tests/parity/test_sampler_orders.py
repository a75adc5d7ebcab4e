"""Compares tests/golden/sampler_orders.json, which unit.data checks against the program, with the samplers of the installed Python."""

import json
import pathlib
import sys
import unittest

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
import make_sampler_orders


class SamplerOrdersTest(unittest.TestCase):
    def test_orders(self):
        committed = json.loads((GOLDEN / "sampler_orders.json").read_text())
        for sampler, cases in make_sampler_orders.results().items():
            self.assertEqual(len(committed[sampler]), len(cases), sampler)
            for expected, actual in zip(cases, committed[sampler]):
                with self.subTest(sampler, **{key: value for key, value in expected.items() if key != "orders"}):
                    self.assertEqual(actual, expected)


if __name__ == "__main__":
    unittest.main()
