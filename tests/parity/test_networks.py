"""Networks with torchvision's names, and timm's vision transformers, have initial values of the same distributions, and compute the same
outputs, gradients and running statistics in float64 from the same state_dict. The program parity_networks is in the folder of
TRAINER_BINARY."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import timm
import torch
import torchvision

PROGRAM = pathlib.Path(os.environ["TRAINER_BINARY"]).with_name("parity_networks")
# By name: the keys of the program, and the arguments of torchvision.
NETWORKS = {
    "resnet18": ("", {}), "resnext50_32x4d": ("", {}), "wide_resnet50_2": ("", {}), "vgg11_bn": ("dropout: 0", {"dropout": 0.0}),
    "mobilenet_v2": ("dropout: 0", {"dropout": 0.0}), "mobilenet_v3_small": ("dropout: 0", {"dropout": 0.0}),
    "mobilenet_v3_large": ("dropout: 0", {"dropout": 0.0}),
    **{f"efficientnet_{name}": ("dropout: 0, drop_path: 0", {"dropout": 0.0, "stochastic_depth_prob": 0.0})
       for name in ("b0", "b1", "b2", "b3", "v2_s")},
    "convnext_tiny": ("drop_path: 0", {"stochastic_depth_prob": 0.0}), "convnext_small": ("drop_path: 0", {"stochastic_depth_prob": 0.0}),
    "densenet121": ("", {}), "densenet169": ("", {}), "regnet_y_400mf": ("", {}), "regnet_y_800mf": ("", {}),
    "regnet_y_1_6gf": ("", {}), "shufflenet_v2_x1_0": ("", {}), "squeezenet1_1": ("dropout: 0", {"dropout": 0.0}),
    "vit_b_16": ("image_size: 32", {"image_size": 32}), "vit_s_16": ("image_size: 32", {"img_size": 32}),
    "dinov2_s_14": ("image_size: 28", {"img_size": 28}), "dinov2_reg4_s_14": ("image_size: 28", {"img_size": 28}),
}
TIMM = {"vit_s_16": "vit_small_patch16_224", "dinov2_s_14": "vit_small_patch14_dinov2", "dinov2_reg4_s_14": "vit_small_patch14_reg4_dinov2"}
TOLERANCE = 1e-10
torch.set_num_threads(1)


def difference(ours, theirs):
    """The largest difference, relative to the largest value."""
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30)).item()


class NetworksTest(unittest.TestCase):
    def compare(self, name, keys, arguments):
        torch.manual_seed(1)
        if name in TIMM:
            network = timm.create_model(TIMM[name], num_classes=7, **arguments)
        else:
            network = torchvision.models.get_model(name, weights=None, num_classes=7, **arguments)
        initial = {key: parameter.detach().clone() for key, parameter in network.named_parameters()}
        network.double()
        # The head's initial weights are zeros, which would make all other gradients zero.
        if name == "vit_b_16":
            torch.nn.init.normal_(network.heads.head.weight, std=0.1)
        state = {key: value.clone() for key, value in network.state_dict().items()}
        size = arguments.get("img_size", 32)
        images, weights = torch.randn(3, 3, size, size, dtype=torch.float64), torch.randn(3, 7, dtype=torch.float64)
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"state": state, "images": images, "weights": weights}, f"{folder}/in.pt")
            run = subprocess.run([PROGRAM, name, f"num_classes: 7, {keys}", f"{folder}/in.pt", f"{folder}/out.pt"], capture_output=True, text=True,
                                 env={**os.environ, "OMP_NUM_THREADS": "1"})
            self.assertEqual(run.returncode, 0, run.stderr)
            ours = torch.load(f"{folder}/out.pt")
        for key, theirs in initial.items():
            self.compare_initial_values(f"{name}: {key}", ours["initial"][key], theirs)
        outputs = network(images)
        (outputs * weights).sum().backward()
        found = [difference(ours["outputs"], outputs.detach())]
        parameters = dict(network.named_parameters())
        self.assertEqual(set(ours["gradients"]), set(parameters))
        found.append(max(difference(ours["gradients"][key], parameter.grad) for key, parameter in parameters.items()))
        buffers = dict(network.named_buffers())
        self.assertEqual(set(ours["buffers"]), set(buffers))
        found.append(max((difference(ours["buffers"][key].double(), buffer.double()) for key, buffer in buffers.items()), default=0.0))
        print(f"{name}: {sum(p.numel() for p in parameters.values())} parameters; outputs {found[0]:.1e}, gradients {found[1]:.1e}, "
              f"running statistics {found[2]:.1e}", flush=True)
        self.assertLess(max(found), TOLERANCE)

    def compare_initial_values(self, name, ours, theirs):
        """Compares random values of the same distribution: a constant, or a mean of 0 and means of absolute values that agree within about
        six standard errors. Does not compare standard deviations, because torch's trunc_normal_ sometimes produces a single value that
        changes them."""
        if theirs.min() == theirs.max():
            self.assertTrue(ours.equal(theirs), name)
        else:
            limit = 6 / theirs.numel() ** 0.5
            self.assertLess(abs(ours.abs().mean() / theirs.abs().mean() - 1), limit, name)
            self.assertLess(abs(ours.mean()), limit * theirs.std(), name)

    def test_networks(self):
        for name, case in NETWORKS.items():
            with self.subTest(name):
                self.compare(name, *case)


if __name__ == "__main__":
    unittest.main(verbosity=2)
