"""Ranks with a GPU each, over the imitated NCCL, in which a collective ends only when all ranks have called it."""

import unittest

from fake_gpu_case import SMALL, FakeGpuCase

FEATURES = {
    "statistics of each rank": ["model={name: resnet20}", "distributed.sync_batch_norm=false"],
    "scattered samples": ["dataset.distribution=scatter"],
    "broadcast samples": ["dataset.distribution=broadcast"],
    "compressed gradients": ["distributed.gradient_compression=bfloat16"],
    "unused parameters": ["distributed.find_unused_parameters=true"],
    "sums of SAM": ["optimizer={name: sam}"],
    "float16, averages and accumulation": ["amp={enabled: true, dtype: float16, init_scale: 1024.0}", "training.ema={decay: 0.9}",
                                           "training.accumulation_steps=2"],
    "histograms and a checkpoint at each step": ["logging.histograms_every_epochs=1", "checkpoint.every_steps=1"],
}


class RanksTest(FakeGpuCase):
    def train_ranks(self, num_ranks, *overrides):
        """Returns the calls of each rank."""
        return self.count(*SMALL, *overrides, num_ranks=num_ranks)

    def test_each_rank_uses_its_own_gpu_only(self):
        for num_ranks in (2, 4):
            for rank, calls in enumerate(self.train_ranks(num_ranks)):
                self.assertEqual(calls["devices"], [rank])
                self.assertGreater(calls["counts"]["ncclAllReduce"], 0)

    def test_every_feature(self):
        for name, overrides in FEATURES.items():
            with self.subTest(name):
                self.train_ranks(2, *overrides)

    def test_gloo(self):
        for rank, calls in enumerate(self.train_ranks(2, "distributed.backend=gloo")):
            self.assertEqual(calls["devices"], [rank])
            self.assertFalse([name for name in calls["counts"] if name.startswith("nccl")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
