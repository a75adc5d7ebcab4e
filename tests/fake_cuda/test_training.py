"""The host code of training, and of every command that uses a GPU, runs without touching the GPU's memory and without races."""

import re
import unittest

from fake_gpu_case import SMALL, FakeGpuCase
from launches import CONFIG

FLOAT16 = "amp={enabled: true, dtype: float16, init_scale: 1024.0}"
PRECISIONS = {"float32": "amp.enabled=false", "bfloat16": "amp={enabled: true, dtype: bfloat16}", "float16": FLOAT16}
# The fourth step is recorded as a CUDA graph. The last batch of an epoch is smaller.
GRAPH = ["runtime.cuda_graph=on", "dataset.num_train=44", "dataloader.drop_last=false"]
FEATURES = {
    "averages": ["training.ema={decay: 0.9}"],
    "mixing": ["dataset.batch_transforms=[mixup: {}, cutmix: {}]"],
    "clipping and accumulation": ["training={epochs: 1, max_grad_norm: 1.0, accumulation_steps: 2}"],
    "dropout": ["model={name: wide_resnet, depth: 10, width: 1, dropout: 0.3}"],
    "histograms": ["logging.histograms_every_epochs=1"],
    "a profile": ["logging.profile_steps=[1, 3]"],
    "a checkpoint at each step": ["checkpoint.every_steps=1", "training.ema={decay: 0.9}", FLOAT16],
    "no threads and no pinned memory": ["dataloader={global_batch_size: 8, num_workers: 0, pin_memory: false}"],
    "the same results each time": ["runtime.deterministic=true"],
    "float64": ["runtime.dtype=float64"],
    "no buffers": ["model={name: demo_conv, num_classes: 10}"],
    "a graph": [*GRAPH, "training.ema={decay: 0.9}", "training.max_grad_norm=1.0", "logging.histograms_every_epochs=1",
                "checkpoint.every_steps=1"],
    "a graph, float16": [*GRAPH, FLOAT16],
    "a graph, mixing and dropout": [*GRAPH, "dataset.batch_transforms=[mixup: {}]",
                                    "model={name: wide_resnet, depth: 10, width: 1, dropout: 0.3}"],
    "fused normalisation": ["runtime.fuse=on", "training.ema={decay: 0.9}"],
    "fused normalisation in a graph, float16": [*GRAPH, "runtime.fuse=on", FLOAT16],
    "no buffers, float16": ["model={name: demo_conv, num_classes: 10}", FLOAT16],
}


class TrainingTest(FakeGpuCase):
    def test_every_optimizer_in_every_precision(self):
        optimizers = re.findall(r"(?m)^(\w+)", self.succeed("list", "optimizers").stdout)
        self.assertGreater(len(optimizers), 5)
        for optimizer in optimizers:
            for name, precision in PRECISIONS.items():
                with self.subTest(f"{optimizer} {name}"):
                    self.train(*SMALL, f"optimizer={{name: {optimizer}}}", precision)

    def test_every_feature(self):
        for name, overrides in FEATURES.items():
            with self.subTest(name):
                self.train(*SMALL, *overrides)

    def test_streams_that_run_early(self):
        self.train(*SMALL, "training.ema={decay: 0.9}", "checkpoint.every_steps=1", variables={"FAKE_CUDA_EARLY": "1"})

    def test_steps_of_a_graph(self):
        counts = self.count(*SMALL, *GRAPH)[0]["counts"]
        # Two epochs have five whole batches each; all but the first three are replayed.
        self.assertEqual(counts["cudaGraphLaunch"], 7)
        # The last step of each epoch, whose gradients are read, is not replayed.
        counts = self.count(*SMALL, *GRAPH, "dataset.num_train=40", "logging.histograms_every_epochs=1")[0]["counts"]
        self.assertEqual(counts["cudaGraphLaunch"], 5)

    def test_trainings_without_a_graph(self):
        for text, overrides in {"training.accumulation_steps: 1": ["training.accumulation_steps=2"],
                                "optimizer adam, adamw, or sgd with dampening 0, and optimizer.skip_zero_grads: false":
                                    ["optimizer={name: rmsprop}"]}.items():
            with self.subTest(text):
                run = self.call("--config", CONFIG, "--run-dir", self.folder / "refused", *SMALL, *overrides, "runtime.cuda_graph=on")
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertIn(f"error: runtime.cuda_graph: on needs {text}; change this, or set runtime.cuda_graph: auto\n", run.stderr)
                self.assertNotIn("cudaGraphLaunch", self.count(*SMALL, *overrides, "runtime.cuda_graph=auto")[0]["counts"])

    def test_cudnn_does_not_search_for_a_last_batch_that_is_smaller(self):
        searches = [self.count(*SMALL, f"dataset.num_validation={number}")[0]["counts"]["cudaEventElapsedTime"] for number in (8, 12)]
        self.assertEqual(searches[0], searches[1])


class CommandsTest(FakeGpuCase):
    def test_commands(self):
        run = self.train(*SMALL, "training.ema={decay: 0.9}", "training.epochs=1")
        folder = run.folder
        config = ["--config", folder / "config.yaml"]
        self.succeed(*config, "--run-dir", folder, "training.epochs=2")
        checkpoint = ["--checkpoint", folder]
        for args in (["eval", *checkpoint], ["export", *checkpoint, "--format", "onnx", "--output", self.folder / "model.onnx"],
                     ["lr-find", *config], ["validate", *config], ["doctor"]):
            with self.subTest(args[0]):
                self.succeed(*args)
        image = self.folder / "image.ppm"
        image.write_bytes(b"P6 32 32 255\n" + bytes(3 * 32 * 32))
        of_images = self.train(*SMALL[:1], "training.epochs=null", "training.steps=1")
        self.succeed("predict", "--checkpoint", of_images.folder, image)
        # verify-resume compares weights, which have no meaningful values here, so both results are possible.
        self.assertIn(self.call("verify-resume", *config, "--steps", "4").returncode, (0, 1))

    def test_replay_of_a_step_that_was_not_finite_on_the_cpu(self):
        overrides = ["model={name: demo_conv, num_classes: 10}", "optimizer={name: sgd, lr: 1.0e+26}", "lr_scheduler={name: constant}"]
        run = self.start(*overrides, device="cpu")
        self.assertEqual(run.status, 1, run.err)
        (kept,) = (run.folder / "non_finite").iterdir()
        replayed = self.call("replay", kept, "runtime.device=cuda")
        self.assertEqual(replayed.returncode, 0, replayed.stderr)
        # The last line of the backward pass; its numbers have no meaning here.
        self.assertIn("\nthe gradient of conv.weight ", replayed.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
