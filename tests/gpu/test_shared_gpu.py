"""Two ranks that share one GPU, over gloo."""

import unittest

from gpu_case import EXACT, RESNET, GpuCase, synthetic

# The last batch of an epoch has three images, of which one rank gets two and the other one; or one image, so that one rank gets none.
UNEVEN_PARTS = {"uneven": 19, "empty": 17}


def with_last_part(num_train):
    return [*RESNET, *synthetic(num_train), "dataloader={global_batch_size: 4, shards: exact, drop_last: false}"]


class SharedGpuTest(GpuCase):
    def assert_as_one_process(self, bound, *overrides):
        two, one = self.train_two_ranks(*overrides), self.train(*overrides)
        self.assert_near(two.losses(), one.losses(), bound)
        self.assert_near(*([event["loss"] for event in run.events("validation")] for run in (two, one)), bound)

    def test_statistics_of_uneven_parts(self):
        for name, num_train in UNEVEN_PARTS.items():
            with self.subTest(name):
                self.assert_as_one_process(1e-8, *with_last_part(num_train), "runtime.dtype=float64")

    def test_statistics_of_uneven_parts_in_bfloat16(self):
        for name, num_train in UNEVEN_PARTS.items():
            with self.subTest(name):
                # Each layer rounds to 8 bits, up to 0.4 %, and rounds the joined batch and its parts differently. On a CPU, the losses then
                # differ by up to 0.0035. If each rank normalises by its own statistics, they differ by 0.02 to 0.04.
                self.assert_as_one_process(0.01, *with_last_part(num_train), "amp.enabled=true", "runtime.channels_last=true")

    def test_compressed_gradients(self):
        overrides = [*EXACT, "training.epochs=2", "optimizer.lr=0.01"]
        plain = self.train_two_ranks(*overrides).losses()
        for dtype in ("float16", "bfloat16"):
            with self.subTest(dtype):
                losses = self.train_two_ranks(*overrides, f"distributed.gradient_compression={dtype}").losses()
                # bfloat16 rounds a gradient by up to 0.4 %, float16 by less. The loss falls by up to 0.3 in the first four steps, and this
                # decrease may differ by the same share.
                self.assert_near(losses[:4], plain[:4], bound=0.002)
                self.assertGreater(abs(losses[3] - plain[3]), 1e-8, "the setting has no effect")
                # The second epoch trains on the same images, so its losses are lower.
                self.assertLess(sum(losses[4:]), sum(losses[:4]))

    def test_a_slow_rank_is_named(self):
        # A step takes some hundredths of a second, on a slow rank half a second more. The first of the four intervals is not checked. With
        # batch normalisation, the exchange over gloo would take half a second per step too, and hide the slow loading.
        overrides = ["model={name: demo_conv, num_classes: 10}", *synthetic(120), "training.epochs=1", "logging.every_steps=3",
                     "dataloader={global_batch_size: 10, prefetch: 1}"]
        for fault, rank, cause in (("1 training 0 slow", 1, "compute"), ("0 loading 0 slow", 0, "data")):
            with self.subTest(cause):
                warnings = [event["message"] for event in self.train_two_ranks(*overrides, fault=fault).events("warning")]
                # Another warning may say that training waited for data.
                warnings = [warning for warning in warnings if " is slow: " in warning]
                self.assertGreater(len(warnings), 0)
                for warning in warnings:
                    self.assertRegex(warning, rf"^rank {rank} \(process \d+ on \S+, cuda:0\) is slow: .*; the largest "
                                     rf"difference is in its {cause} time \(")


if __name__ == "__main__":
    unittest.main(verbosity=2)
