"""The networks for comparisons with Python. The order of parameters and the arithmetic are those of models/."""

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class DemoConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        self.fc = nn.Linear(16 * 30 * 30, 10)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).flatten(1))


class CifarBlock(nn.Module):
    """Basic block of He et al. 2015, section 4.2. The shortcut has no parameters (option A): where the shape changes it selects every
    second row and column and appends channels of zeros."""

    def __init__(self, in_channels, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.new_channels = channels - in_channels

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        if self.new_channels:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
        out += x
        return F.relu(out, inplace=True)


class CifarResNet(nn.Module):
    def __init__(self, depth):
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = self.stage(16, 16, blocks, 1)
        self.layer2 = self.stage(16, 32, blocks, 2)
        self.layer3 = self.stage(32, 64, blocks, 2)
        self.fc = nn.Linear(64, 10)

    @staticmethod
    def stage(in_channels, channels, blocks, stride):
        first = CifarBlock(in_channels, channels, stride)
        return nn.Sequential(first, *(CifarBlock(channels, channels, 1) for _ in range(blocks - 1)))

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def resnet18_cifar():
    """torchvision's ResNet-18 with the stem for 32x32 images: a 3x3 convolution of stride 1 and no max pooling."""
    network = torchvision.models.resnet18(num_classes=10)
    network.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    network.maxpool = nn.Identity()
    return network


class AirbenchNorm(nn.BatchNorm2d):
    """Batch normalisation whose weight stays 1."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-12, momentum=0.4)
        del self.weight
        self.register_buffer("weight", torch.ones(channels))


class AirbenchBlock(nn.Module):
    def __init__(self, in_channels, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        self.norm1 = AirbenchNorm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = AirbenchNorm(channels)

    def forward(self, x):
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return F.gelu(self.norm2(self.conv2(x)))


class Whitening(nn.Module):
    """The first layer of Airbench before it has seen data."""

    def __init__(self):
        super().__init__()
        identity = torch.eye(12)
        self.register_buffer("weight", torch.cat([identity, -identity]).reshape(24, 3, 2, 2))
        self.bias = nn.Parameter(torch.zeros(24))

    def forward(self, x):
        return F.gelu(F.conv2d(x, self.weight, self.bias))


class Airbench(nn.Module):
    """The network of Jordan's airbench94_muon."""

    def __init__(self):
        super().__init__()
        self.whiten = Whitening()
        self.block1 = AirbenchBlock(24, 64)
        self.block2 = AirbenchBlock(64, 256)
        self.block3 = AirbenchBlock(256, 256)
        self.head = nn.Linear(256, 10, bias=False)

    def forward(self, x):
        x = self.block3(self.block2(self.block1(self.whiten(x))))
        return self.head(F.max_pool2d(x, 3).flatten(1)) / 256


NETWORKS = {"demo_conv": DemoConv, "resnet20": lambda: CifarResNet(20), "resnet18": resnet18_cifar, "airbench": Airbench}


def fill(network, seed):
    """Fills the parameters so that another program can do the same. Each parameter in named_parameters() order gets
    x = torch.randn(shape, float64) from a CPU generator with this seed: with two or more dimensions x * sqrt(2 / fan_in), where fan_in is
    numel / size(0); a 1-D weight 1 + 0.1 x; a 1-D bias 0.1 x. Buffers keep their defaults."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.dim() >= 2:
                values *= (2 / (parameter.numel() / parameter.size(0))) ** 0.5
            else:
                values = values * 0.1 + (1 if name.endswith("weight") else 0)
            parameter.copy_(values)
