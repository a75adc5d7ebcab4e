"""The losses of runs on one GPU: compared with the CPU's, in each precision, and with NCCL."""

import re
import unittest

from gpu_case import EXACT, RESNET, GpuCase, synthetic

OPTIMIZERS = {
    "sgd": "optimizer={name: sgd, lr: 0.001, momentum: 0.9, weight_decay: 0.01, nesterov: true}",
    "adam": "optimizer={name: adam, lr: 0.001, weight_decay: 0.01}",
    "adamw": "optimizer={name: adamw, lr: 0.001, weight_decay: 0.1}",
    "rmsprop": "optimizer={name: rmsprop, lr: 0.001, momentum: 0.9, weight_decay: 0.01}",
    "muon": "optimizer={name: muon, lr: 0.001, linear_lr: 0.001, bias_lr: 0.001, sgd_weight_decay: 1.0e-5}",
    "sam": "optimizer={name: sam, lr: 0.001, momentum: 0.9, rho: 0.1}",
}


def validation_losses(run):
    """The validation losses with the parameters and, if it exists, with their moving average."""
    return [event[key] for event in run.events("validation") for key in ("loss", "ema_loss") if key in event]


class LossesTest(GpuCase):
    def assert_as_on_the_cpu(self, *overrides):
        """Compares a run with the same run on the CPU; returns its losses of validation and of training."""
        gpu, cpu = (self.train(*EXACT, *overrides, device=device) for device in ("cuda", "cpu"))
        self.assert_near(gpu.losses(), cpu.losses())
        self.assert_near(validation_losses(gpu), validation_losses(cpu))
        return validation_losses(gpu), gpu.losses()

    def test_every_optimizer(self):
        names = re.findall(r"(?m)^(\w+)", self.call("list", "optimizers").stdout)
        self.assertGreaterEqual(set(names), set(OPTIMIZERS))
        seen = []
        for name in names:
            with self.subTest(name):
                _, losses = self.assert_as_on_the_cpu(OPTIMIZERS.get(name, f"optimizer={{name: {name}, lr: 0.001}}"))
                # The optimizers make different steps; otherwise the comparison could not tell them apart.
                self.assertNotIn(losses[-1], seen)
                seen.append(losses[-1])

    def test_clipping_accumulation_and_averaging(self):
        _, plain = self.assert_as_on_the_cpu()
        for overrides in (["training.max_grad_norm=0.1"], ["training.accumulation_steps=2"]):
            with self.subTest(overrides):
                _, losses = self.assert_as_on_the_cpu(*overrides)
                self.assertGreater(abs(losses[-1] - plain[-1]), 1e-5, "the setting has no effect")
        validated, losses = self.assert_as_on_the_cpu("training.ema={decay: 0.9}")
        self.assert_near(losses, plain)
        self.assertEqual(len(validated), 2)
        self.assertGreater(abs(validated[1] - validated[0]), 1e-5, "the averaged network equals the network")

    def test_one_process_over_nccl(self):
        over_nccl, alone = self.train(*EXACT, "distributed.backend=nccl"), self.train(*EXACT)
        self.assert_near(over_nccl.losses(), alone.losses())
        self.assert_near(validation_losses(over_nccl), validation_losses(alone))

    def test_the_default_precision(self):
        overrides = [*RESNET, *synthetic(200), "dataloader.global_batch_size=50"]
        exact = self.train(*overrides, "runtime.dtype=float64", device="cpu")
        for fuse in ("auto", "on"):
            with self.subTest(fuse=fuse):
                default = self.train(*overrides, f"runtime.fuse={fuse}")
                # bfloat16 has 8 significant bits, so each of 20 layers rounds its outputs by up to 0.4 %, at random. A loss of 2.5, the mean
                # over 50 images, then differs by some 0.001; bfloat16 on a CPU gives 0.0014. Weights that are not updated would give 0.03.
                self.assert_near(default.losses(), exact.losses(), bound=0.01)
                self.assert_near(validation_losses(default), validation_losses(exact), bound=0.01)

    def test_fused_normalisation(self):
        overrides = [*RESNET, *synthetic(200), "dataloader.global_batch_size=50"]
        exact = self.train(*overrides, "runtime.dtype=float64", device="cpu")
        # float32 rounds 65,000 times less than bfloat16, but roundings also change which values pass a ReLU.
        for graph in ("off", "on"):
            fused = self.train(*overrides, "amp.enabled=false", "runtime.allow_tf32=false", "runtime.fuse=on", f"runtime.cuda_graph={graph}")
            self.assert_near(fused.losses(), exact.losses(), bound=0.0005)
            self.assert_near(validation_losses(fused), validation_losses(exact), bound=0.0005)

    def test_float16_with_the_grad_scaler(self):
        start_scale = 2.0**24
        run = self.train("training.epochs=2", f"amp={{enabled: true, dtype: float16, init_scale: {start_scale}, growth_interval: 20}}")
        first, last = run.events("train")[0], run.events("train")[-1]
        # On a CPU, a scale of 2**15 does not overflow: it is reached by nine halvings, each of which skips one of the 80 steps.
        self.assertGreater(first["skipped_steps"], 3)
        self.assertLess(last["skipped_steps"], 20)
        self.assertLess(last["grad_scale"], start_scale)
        self.assertLess(last["loss"], first["loss"])

    def test_auto_uses_the_gpu_and_learns(self):
        losses = self.train("training.epochs=2", device="auto").losses()
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
