"""A step that is not finite on a GPU is kept, and repeated by `trainer replay` on the GPU and on the CPU."""

import unittest

from gpu_case import GpuCase

# After the first step, the weights are so large that the product of two layers overflows in any precision, but not the output of one layer.
DIVERGES = ["model={name: demo_conv, num_classes: 10}", "optimizer={name: sgd, lr: 1.0e+26}", "lr_scheduler={name: constant}",
            "logging.every_steps=5"]


class NonFiniteTest(GpuCase):
    def kept_steps(self, policy):
        """The folders of the kept steps of a run that diverges."""
        run = self.start(*DIVERGES, f"training.on_non_finite={policy}")
        self.assertEqual((run.status, run.devices()), (1, ["cuda:0"]), run.err)
        self.assertRegex(run.err, r"error: step \d+ .*is not finite, at learning rate 1e\+26")
        return sorted((run.folder / "non_finite").iterdir())

    def test_the_first_step_is_kept_and_replayed(self):
        kept = self.kept_steps("stop")
        # On a GPU, the run detects the step only at the end of the logging interval. The steps until then have changed nothing.
        self.assertEqual([folder.name for folder in kept], ["step_1"])
        for device in ("cuda", "cpu"):
            with self.subTest(device):
                replayed = self.call("replay", kept[0], f"runtime.device={device}")
                self.assertEqual(replayed.returncode, 0, replayed.stderr)
                self.assertRegex(replayed.stdout, r"\nfirst not finite: .*, as in the run\n")

    def test_skipped_steps_are_kept(self):
        self.assertEqual([folder.name for folder in self.kept_steps("skip")], ["step_1", "step_2", "step_3"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
