"""optimizer.layer_decay gives each parameter the learning rate that timm's param_groups_layer_decay gives it. TRAINER_BINARY is the
program."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import timm
import timm.optim
import torch

DECAY = 0.75
# By the program's name: the name in timm, and the size of the images.
NETWORKS = {"resnet18": ("resnet18", 32), "vit_s_16": ("vit_small_patch16_224", 224)}


class LayerDecayTest(unittest.TestCase):
    def step(self, folder, name, size, decay):
        """The parameters after a step of SGD from those in init.pt."""
        run = subprocess.run([os.environ["TRAINER_BINARY"], "--config", folder / "x.yaml", "--run-dir", folder / decay, f"model={{name: {name}, init_from: {folder}/init.pt}}",
                              f"dataset.shape=[3, {size}, {size}]", f"optimizer.layer_decay={decay}"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return torch.load(folder / decay / "checkpoints" / "last.pt", weights_only=True)["model"]

    def test_factors(self):
        for name, (of_timm, size) in NETWORKS.items():
            with self.subTest(name), tempfile.TemporaryDirectory(prefix="trainer-layer-decay-") as path:
                folder = pathlib.Path(path)
                (folder / "x.yaml").write_text("experiment: x\ndataset: {name: synthetic, num_classes: 10, num_train: 4, num_validation: 2}\n"
                                               "dataloader: {global_batch_size: 4}\noptimizer: {name: sgd, lr: 0.001}\nvalidation: {every_epochs: null}\n"
                                               "training: {epochs: 1}\nruntime: {device: cpu, dtype: float64}\n")
                torch.manual_seed(1)
                # timm would initialise these weights with zeros, which would stop the gradients
                zeros = {"zero_init_last": False} if name.startswith("resnet") else {}
                network = timm.create_model(of_timm, num_classes=10, **zeros)
                before = {key: value.double() for key, value in network.state_dict().items()}
                torch.save(network.state_dict(), folder / "init.pt")
                plain, decayed = (self.step(folder, name, size, decay) for decay in ("null", str(DECAY)))
                names = {id(parameter): key for key, parameter in network.named_parameters()}
                groups = timm.optim.param_groups_layer_decay(network, layer_decay=DECAY)
                expected = {names[id(parameter)]: group["lr_scale"] for group in groups for parameter in group["params"]}
                self.assertEqual(len(expected), len(names))
                for key, factor in expected.items():
                    step, smaller = plain[key] - before[key], decayed[key] - before[key]
                    largest = step.abs().argmax()
                    self.assertGreater(step.flatten()[largest].abs().item(), 0, key)
                    self.assertAlmostEqual((smaller.flatten()[largest] / step.flatten()[largest]).item(), factor, delta=1e-6, msg=key)


if __name__ == "__main__":
    unittest.main()
