"""Writes torchvision_names.txt into its own folder: the state_dict of some of torchvision's networks with 1000 classes.

A line with the network's name, then "name shape" for each parameter and buffer, in state_dict order; a scalar's shape is "()".
"""
import pathlib

import torch
import torchvision

NETWORKS = ["resnet18", "vgg16_bn"]

lines = []
for network in NETWORKS:
    with torch.device("meta"):
        model = torchvision.models.get_model(network, weights=None)
    lines.append(network)
    for name, tensor in model.state_dict().items():
        lines.append(f"{name} {'x'.join(map(str, tensor.shape)) or '()'}")
pathlib.Path(__file__).with_name("torchvision_names.txt").write_text("\n".join(lines) + "\n")
