"""The first step of ResNet-18 (stem for 32x32, batch 32) in an eager script on a GPU. Prints "step" and the Unix time at which it ended."""

import sys
import time

import torch
import torch.nn.functional as F
from gpu_networks import NETWORKS

device = sys.argv[1]
network = NETWORKS["resnet18", "cifar"]().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=True)
images = torch.randn(32, 3, 32, 32).to(device, memory_format=torch.channels_last)
targets = torch.randint(0, 10, (32,)).to(device)
with torch.autocast(torch.device(device).type, torch.bfloat16):
    loss = F.cross_entropy(network(images), targets)
loss.backward()
optimizer.step()
assert loss.isfinite()
print("step", time.time(), flush=True)
sys.stdin.read()  # until the memory has been read
