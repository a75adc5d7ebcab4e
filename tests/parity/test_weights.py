"""model.weights: training starts from files as torchvision publishes them, which torchvision's own constructors write here; all tensors but
the last layer must fit. From folders of timm's networks, the program predicts what timm does. TRAINER_BINARY is the program;
TRAINER_OPENCV is 0 if it was built without OpenCV."""

import json
import os
import pathlib
import re
import sys
import unittest

import safetensors.torch
import timm
import timm.data
import timm.layers
import timm.models._hub
import torch
import torchvision
from PIL import Image

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

    @unittest.skipIf(os.environ.get("TRAINER_OPENCV") == "0", "this build reads no image files")
    def test_folders_of_timm(self):
        torch.manual_seed(1)
        images = []
        for label in range(3):
            images.append(self.folder / "images" / f"kind {label}" / "one.png")
            images[-1].parent.mkdir(parents=True)
            smooth = torch.nn.functional.interpolate(torch.rand(1, 3, 7, 9), (260, 300), mode="bicubic")[0].clamp(0, 1)
            Image.fromarray(smooth.mul(255).byte().permute(1, 2, 0).contiguous().numpy()).save(images[-1])
        for name, theirs in (("resnet18", "resnet18"), ("resnext50_32x4d", "resnext50_32x4d"), ("mobilenet_v2", "mobilenetv2_100"), ("efficientnet_b0", "efficientnet_b0"),
                             ("regnet_y_400mf", "regnety_004"), ("convnext_tiny", "convnext_tiny"), ("vit_b_16", "vit_base_patch16_224"),
                             ("vit_s_16", "vit_small_patch16_224"), ("densenet121", "densenet121"), ("dinov2_s_14", "vit_small_patch14_dinov2"),
                             ("dinov2_reg4_s_14", "vit_small_patch14_reg4_dinov2")):
            with self.subTest(name):
                network = timm.create_model(theirs, num_classes=3).eval()
                for buffer_name, buffer in network.named_buffers():
                    if "running_mean" in buffer_name:
                        buffer.uniform_(-0.1, 0.1)
                    if "running_var" in buffer_name:
                        buffer.uniform_(0.5, 1.5)
                for parameter_name, parameter in network.named_parameters():
                    if "gamma" in parameter_name:
                        parameter.data.uniform_(0.1, 0.5)
                weights = self.folder / "weights" / theirs
                weights.mkdir(parents=True)
                timm.models._hub.save_config_for_hf(network, weights / "config.json")
                safetensors.torch.save_file(network.state_dict(), weights / "model.safetensors")
                config = self.folder / f"{name}.yaml"
                # The learning rate is so small that a step changes only parameters that are 0; the statistics of frozen layers do not change.
                config.write_text(f"experiment: {name}\nmodel: {{name: {name}, weights: {weights}, freeze: [backbone]}}\n"
                                  f"dataset: {{name: image_folder, root: {self.folder / 'images'}, validation_split: 0}}\ndataloader: {{batch_size: 3}}\n"
                                  "optimizer: {name: sgd, lr: 1.0e-30}\ntraining: {steps: 1}\nruntime: {device: cpu}\namp: {enabled: false}\n"
                                  "validation: {every_epochs: null}\n")
                run = self.ran("--config", config, "--run-dir", self.folder / name)
                self.assertIn(f"license of these weights: {network.pretrained_cfg['license']}", run.err)
                lines = self.ran("predict", "--checkpoint", self.folder / name, "--json", *images).out.splitlines()
                found = [[entry["probability"] for entry in sorted(json.loads(line)["classes"], key=lambda entry: entry["label"])] for line in lines]
                settings = timm.data.resolve_data_config(network.pretrained_cfg)
                if name.startswith("dinov2"):
                    # Trained on images of 518 pixels; the program's default is 224.
                    state = network.state_dict()
                    state["pos_embed"] = timm.layers.resample_abs_pos_embed(state["pos_embed"], [16, 16], num_prefix_tokens=0 if "reg4" in name else 1)
                    network = timm.create_model(theirs, num_classes=3, img_size=224).eval()
                    network.load_state_dict(state)
                    settings["input_size"] = (3, 224, 224)
                transform = timm.data.create_transform(**settings)
                with torch.no_grad():
                    expected = network(torch.stack([transform(Image.open(image)) for image in images])).softmax(1)
                torch.testing.assert_close(torch.tensor(found), expected.double(), rtol=0, atol=1e-5, check_dtype=False)


if __name__ == "__main__":
    unittest.main()
