"""The errors when a GPU cannot be used as configured."""

import unittest

from gpu_case import TWO_RANKS, GpuCase

# The outputs of a step have 4 * 10**12 values, which exceeds the memory of any GPU; everything else is small.
LARGE_OUTPUTS = ["model={name: demo_linear, in_features: 4, out_features: 4000000}",
                 "dataset={name: synthetic, shape: [4], num_classes: 4000000, num_train: 1000000, num_validation: 10}",
                 "dataset.train_transforms=[]", "dataset.validation_transforms=[]", "dataloader.global_batch_size=1000000"]


# Settings with which a run that is not refused ends soon.
SHORT = ["model={name: demo_conv, num_classes: 10}", "optimizer.lr=0.001", "training.epochs=1"]


class RefusalsTest(GpuCase):
    def assert_refused(self, run, reason):
        self.assertEqual(run.status, 2, run.err)
        self.assertRegex(run.err, rf"(?m)^(rank \d: )?error: {reason}")
        self.assertFalse(run.folder.exists())

    def test_two_ranks_on_one_gpu_without_gloo(self):
        for backend in ("auto", "nccl"):
            with self.subTest(backend):
                run = self.start(*SHORT, f"distributed.backend={backend}", launcher=TWO_RANKS)
                self.assert_refused(run, r"ranks 0 and 1 use the same GPU [0-9a-f:.]+ on \S+, which NCCL does not support; start one process per GPU, or set distributed\.backend: gloo$")

    def test_hidden_gpus(self):
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        self.assert_refused(self.start(*SHORT, variables=hidden),
                            "runtime.device: cuda is set, but this process has no access to a GPU; request one ")
        run = self.train(*SHORT, device="auto", variables=hidden, devices=["cpu"])
        self.assertNotIn("warning", run.err)

    def test_allocator_settings(self):
        self.assert_refused(self.start(*SHORT, "runtime.cuda_allocator=expandable_segment:True"),
                            r'command line: runtime\.cuda_allocator: the allocator has no key "expandable_segment"; did you mean '
                            r'"expandable_segments"\?$')
        self.train(*SHORT, "runtime.cuda_allocator=expandable_segments:True")

    def test_out_of_memory(self):
        run = self.start(*LARGE_OUTPUTS)
        self.assertEqual((run.status, run.devices()), (1, ["cuda:0"]), run.err)
        self.assertIn("error: out of memory in step 0 at batch_size 1000000; raise training.accumulation_steps, and unless "
                      "dataloader.global_batch_size is set, lower dataloader.batch_size by the same factor\n", run.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
