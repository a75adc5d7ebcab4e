"""The networks of step.py and ranks.py by name: those of the tests, and larger ones. Their arithmetic is that of models/."""

import pathlib
import sys

import torchvision
from gpu_networks import WideResNet
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
from networks import NETWORKS as TESTED


def vgg16_cifar():
    network = torchvision.models.vgg16_bn()
    network.avgpool = nn.AdaptiveAvgPool2d(1)
    network.classifier = nn.Sequential(nn.Dropout(0.5), nn.Linear(512, 10))
    return network


# Networks that torchvision lacks, with timm's names.
TIMM = {"vit_s_16": "vit_small_patch16_224", **{f"efficientnet_lite{i}": f"tf_efficientnet_lite{i}" for i in range(3)}}


def torchvision_network(name, image_size):
    if name in TIMM:
        import timm
        return timm.create_model(TIMM[name], num_classes=10, **({"img_size": image_size} if name.startswith("vit") else {}))
    sized = {"image_size": image_size} if name.startswith("vit") else {}
    return torchvision.models.get_model(name, num_classes=10, **sized)


NETWORKS = {**TESTED, "vgg16_bn": vgg16_cifar, "wide_resnet": WideResNet}
