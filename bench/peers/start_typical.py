"""The first step of start.py, written as in the usual examples: torchvision's network and transforms, a DataLoader with two workers,
torch.optim.
Argument: the folder of the CIFAR-10 files. Prints "step" and the Unix time at which the step ended."""

import sys
import time

import torch
import torch.nn.functional as F
import torchvision
from data import Cifar10, pil_loader

network = torchvision.models.resnet18(num_classes=10)
network.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
network.maxpool = torch.nn.Identity()
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
images, labels = next(iter(pil_loader(Cifar10(sys.argv[1]), batch_size=32, num_workers=2)))
optimizer.zero_grad()
loss = F.cross_entropy(network(images), labels)
loss.backward()
optimizer.step()
assert loss.isfinite()
print("step", time.time(), flush=True)
sys.stdin.read()  # until bench.py has read the peak memory
