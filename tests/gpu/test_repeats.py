"""Runs on a GPU that are equal bit for bit under runtime.deterministic, or that continue another run."""

import signal
import threading
import unittest

from gpu_case import EXACT, LIMIT_SECONDS, GpuCase, Run
from launches import CONFIG

# 100 steps of a few milliseconds in each of two epochs, with random crops and flips, in the default precision.
REPEATABLE = ["runtime.deterministic=true", "dataset.validation_split=0.6", "dataloader.global_batch_size=8", "training.epochs=2",
              "validation.every_epochs=1", "logging.every_steps=1", "optimizer.lr=0.01", "runtime.device=cuda"]
# Each step takes the GPU far longer than the host needs to queue it. The eight steps of an epoch use three batch buffers by turns.
SLOW_STEPS = ["runtime.deterministic=true", "model={name: wide_resnet, depth: 16, width: 8}", "amp.enabled=false",
              "dataloader={global_batch_size: 250, prefetch: 2}", "training.epochs=2", "logging.every_steps=1000"]


class RepeatsTest(GpuCase):
    def stop_early(self):
        """Stops a run after its first steps by SIGTERM; returns its folder."""
        folder = self.folder / "stopped"
        with self.begin("--config", CONFIG, "--run-dir", folder, *REPEATABLE) as process:
            limit = threading.Timer(LIMIT_SECONDS, process.kill)
            self.addCleanup(limit.cancel)
            limit.start()
            output = ""
            for line in process.stderr:
                output += line
                if line.startswith("epoch 1/2  step 3/100"):
                    process.send_signal(signal.SIGTERM)
        self.assertEqual(process.returncode, 75, output)
        return folder

    def test_stopped_and_resumed(self):
        straight, again = self.train(*REPEATABLE), self.train(*REPEATABLE)
        self.assert_equal_runs(again, straight)
        folder = self.stop_early()
        process = self.call("--config", CONFIG, "--run-dir", folder, *REPEATABLE)
        resumed = Run(folder, process)
        self.assertEqual(resumed.status, 0, resumed.err)
        self.assertEqual(resumed.devices(), ["cuda:0"])
        self.assertEqual([event["step"] for event in straight.events("train")], list(range(1, 201)))
        (begin,) = resumed.events("resume")
        self.assertIn(begin["step"], range(3, 200))
        self.assert_equal_runs(resumed, straight)

    def test_steps_of_a_graph(self):
        # In a CUDA graph, the learning rate is a float32 number; this one has the same value in float32.
        settings = [*REPEATABLE, "lr_scheduler={name: constant}", "optimizer.lr=0.0078125"]
        # The last batch of an epoch has 16 images.
        others = ["model={name: wide_resnet, depth: 10, width: 1, dropout: 0.3}", "dataset.batch_transforms=[mixup: {}]", "training.max_grad_norm=1.0",
                  "training.ema={decay: 0.9}", "amp={enabled: true, dtype: float16}", "dataloader={global_batch_size: 28, drop_last: false}"]
        for further in ([], others):
            self.assert_equal_runs(self.train(*settings, *further, "runtime.cuda_graph=on"), self.train(*settings, *further))

    def test_verify_resume(self):
        verified = self.call("verify-resume", "--config", CONFIG, "--steps", "10", *REPEATABLE)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        self.assertRegex(verified.stdout, "^equal, bit for bit, in \\d+ tensors: 10 steps without interruption, and 5 \\+ 5 steps ")

    def test_loading_does_not_change_the_result(self):
        """A batch buffer is written again only after the GPU has copied it, however far the host is ahead."""
        runs = [self.train(*SLOW_STEPS, f"dataloader.pin_memory={pins}", f"dataloader.num_workers={workers}")
                for pins in ("false", "true") for workers in (0, 4)]
        for run in runs[1:]:
            self.assert_equal_runs(run, runs[0])

    def test_from_the_gpu_to_the_cpu_and_back(self):
        settings = [*EXACT, "training.epochs=3", "training.ema={decay: 0.9}", "checkpoint.keep_last=100"]
        straight = self.train(*settings)
        on_cpu = self.resume(straight, 4, *settings, device="cpu")
        back = self.resume(on_cpu, 8, *settings)
        for run, first_step in ((on_cpu, 4), (back, 8)):
            self.assertEqual([event["step"] for event in run.events("train")], list(range(first_step + 1, 13)))
            self.assert_near(run.losses(), straight.losses()[first_step:])
            last, expected = run.events("validation")[-1], straight.events("validation")[-1]
            self.assert_near([last["loss"], last["ema_loss"]], [expected["loss"], expected["ema_loss"]])

    def resume(self, run, step, *settings, device="cuda"):
        """Continues a run in another folder."""
        checkpoint = run.folder / "checkpoints" / f"step_{step:08}.pt"
        resumed = self.train("--resume", checkpoint, *settings, device=device)
        self.assertIn(f"resumes from {checkpoint}: ", resumed.err)
        return resumed


if __name__ == "__main__":
    unittest.main(verbosity=2)
