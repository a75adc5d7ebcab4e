"""Compares tests/golden/sampler_orders.json, which unit.input checks against the program, with DistributedSampler of the installed Python."""

import json
import pathlib
import sys
import unittest

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
sys.path.insert(0, str(GOLDEN))
import make_sampler_orders


class SamplerOrdersTest(unittest.TestCase):
    def test_orders(self):
        committed = json.loads((GOLDEN / "sampler_orders.json").read_text())["cases"]
        computed = make_sampler_orders.results()
        self.assertEqual(len(committed), len(computed))
        for expected, actual in zip(computed, committed):
            with self.subTest(num_samples=expected["num_samples"], world_size=expected["world_size"], drop_last=expected["drop_last"]):
                self.assertEqual(actual, expected)


if __name__ == "__main__":
    unittest.main()
