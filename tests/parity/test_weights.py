"""model.weights: training starts from files as torchvision publishes them, which torchvision's own constructors write here; all tensors but
the last layer must fit. TRAINER_BINARY is the program."""

import os
import pathlib
import re
import sys
import unittest

import torch
import torchvision

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from program import ROOT, FolderCase  # noqa: E402


def old_name(model, name):
    """The name of the tensor in the published files, which older versions of torchvision wrote."""
    if model.startswith("densenet"):
        return re.sub(r"(denselayer\d+\.(?:norm|conv))(\d)", r"\1.\2", name)
    if model.startswith("vit"):
        return name.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2.")
    return name


class WeightsTest(FolderCase):
    def ran(self, *args):
        return super().ran(*args, env={**os.environ, "TRAINER_HOME": str(self.folder)})

    def test_each_kind_of_file(self):
        for name in ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "densenet121", "shufflenet_v2_x1_0", "squeezenet1_1", "regnet_y_400mf", "vit_b_16"):
            with self.subTest(name):
                torch.manual_seed(1)
                model = torchvision.models.get_model(name)
                file = self.folder / f"{name}.pth"
                torch.save({old_name(name, key): value for key, value in model.state_dict().items()}, file)
                config = self.folder / f"{name}.yaml"
                size = 224 if name == "vit_b_16" else 64
                # The learning rate is so small that a step changes only parameters that are 0.
                config.write_text(f"experiment: {name}\nmodel: {{name: {name}, weights: file://{file}}}\n"
                                  f"dataset: {{name: synthetic, shape: [3, {size}, {size}], num_classes: 7, num_train: 2, num_validation: 1}}\n"
                                  "optimizer: {name: sgd, lr: 1.0e-30}\ndataloader: {batch_size: 2}\ntraining: {steps: 1}\nruntime: {device: cpu}\n"
                                  "validation: {every_epochs: null}\n")
                run = self.ran("--config", config, "--run-dir", self.folder / name)
                self.assertRegex(run.err, r"the model starts with \d+ tensors of .*; the last layer \(\S+, \S+\) starts with random values, because it has 7 outputs")
                state = torch.load(self.folder / name / "checkpoints" / "last.pt", weights_only=False)["model"]
                different = [key for key, value in model.named_parameters()
                             if value.shape != state[key].shape or not torch.allclose(state[key], value, rtol=0, atol=1e-20)]
                self.assertEqual(len(different), 2)
                for key in different:
                    self.assertEqual(state[key].shape, (7, *model.state_dict()[key].shape[1:]))

    def test_the_transforms_of_the_weights(self):
        for name in ("resnet50", "efficientnet_b0", "efficientnet_b1"):
            weights = torchvision.models.get_model_weights(name).DEFAULT
            config = self.folder / "x.yaml"
            config.write_text(f"experiment: x\nmodel: {{name: {name}, weights: {weights.name.lower()}}}\n"
                              f"dataset: {{name: cifar10, root: {ROOT}/datasets/cifar10_sample}}\ntraining: {{epochs: 1}}\n")
            shown = self.ran("config", "show", "--config", config).out
            keys = weights.transforms.keywords
            interpolation = f"interpolation: {weights.transforms().interpolation.value}"
            for part in (f"resize: {{size: {keys['resize_size']}, longest: null, {interpolation}}}", f"center_crop: {{size: {keys['crop_size']}}}",
                         f"random_resized_crop: {{size: {keys['crop_size']}, ", f"1.3333333333333333], {interpolation}}}"):
                self.assertIn(part, shown)
            own = self.ran("config", "show", "--config", config, "dataset.validation_transforms=[]").out
            self.assertIn("validation_transforms: []", own)


if __name__ == "__main__":
    unittest.main()
