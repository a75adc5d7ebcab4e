"""Writes flops.txt into its own folder: for each network its name, the keys of model that choose it, the height and width of its images
(3 channels), its number of parameters, and the FLOPs of one forward pass of one image as torch.utils.flop_counter counts them.
"""
import pathlib

import timm
import torch
import torchvision
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from networks import NETWORKS


def torchvision_network(name):
    return lambda: torchvision.models.get_model(name, weights=None)


def vgg11_cifar():
    """One linear layer after the convolutions of torchvision's network."""
    return nn.Sequential(torchvision.models.vgg11_bn(weights=None).features, nn.Flatten(), nn.Linear(512, 10))


CASES = [
    ("demo_conv", "", 32, NETWORKS["demo_conv"]),
    ("resnet20", "", 32, NETWORKS["resnet20"]),
    ("airbench", "", 32, NETWORKS["airbench"]),
    ("resnet18", "stem: cifar", 32, NETWORKS["resnet18"]),
    ("resnet50", "num_classes: 1000", 64, torchvision_network("resnet50")),
    ("vgg11_bn", "head: cifar", 32, vgg11_cifar),
    *[(name, "num_classes: 1000", 64, torchvision_network(name))
      for name in ("resnext50_32x4d", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_v2_s",
                   "regnet_y_400mf", "convnext_tiny", "densenet121", "shufflenet_v2_x1_0", "squeezenet1_1")],
    ("vit_b_16", "num_classes: 1000, image_size: 64", 64, lambda: torchvision.models.vit_b_16(weights=None, image_size=64)),
    ("vit_s_16", "num_classes: 1000, image_size: 64", 64, lambda: timm.create_model("vit_small_patch16_224", img_size=64)),
]
# The FLOP counter supports neither the fused layer of an encoder nor the fused attention of a CPU.
torch.backends.mha.set_fastpath_enabled(False)

lines = []
for name, keys, size, build in CASES:
    network = build().eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        network(torch.zeros(1, 3, size, size))
    parameters = sum(parameter.numel() for parameter in network.parameters())
    lines.append(f"{name};{keys};{size};{parameters};{counter.get_total_flops()}")
pathlib.Path(__file__).with_name("flops.txt").write_text("\n".join(lines) + "\n")
