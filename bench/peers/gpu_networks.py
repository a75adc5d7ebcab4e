"""The networks of gpu_step.py and gpu_start.py, which need only torch, because the machine may have no torchvision. Parameter names and
arithmetic are those of models/resnet.cpp and models/wide_resnet.cpp."""

import torch.nn.functional as F
from torch import nn


def conv(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


def shortcut(inputs, outputs, stride):
    return None if stride == 1 and inputs == outputs else nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, channels, 3, stride), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = conv(channels, channels, 3), nn.BatchNorm2d(channels)
        self.downsample = shortcut(inputs, channels, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.downsample(x) if self.downsample else x
        return F.relu(y, inplace=True)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, channels, 1), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = conv(channels, channels, 3, stride), nn.BatchNorm2d(channels)
        self.conv3, self.bn3 = conv(channels, 4 * channels, 1), nn.BatchNorm2d(4 * channels)
        self.downsample = shortcut(inputs, 4 * channels, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += self.downsample(x) if self.downsample else x
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, block, blocks, stem):
        super().__init__()
        is_small = stem == "cifar"
        self.conv1 = conv(3, 64, 3) if is_small else conv(3, 64, 7, 2)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.Identity() if is_small else nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for number, (count, channels) in enumerate(zip(blocks, (64, 128, 256, 512)), start=1):
            stage = []
            for i in range(count):
                stage.append(block(inputs, channels, 2 if i == 0 and number > 1 else 1))
                inputs = channels * block.expansion
            setattr(self, f"layer{number}", nn.Sequential(*stage))
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class WideBlock(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), conv(inputs, channels, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(channels), conv(channels, channels, 3)
        self.shortcut = conv(inputs, channels, 1, stride) if inputs != channels else None

    def forward(self, x):
        activated = F.relu(self.bn1(x), inplace=True)
        y = self.conv2(F.relu(self.bn2(self.conv1(activated)), inplace=True))
        y += self.shortcut(activated) if self.shortcut else x
        return y


class WideResNet(nn.Module):
    """WRN-28-10."""

    def __init__(self):
        super().__init__()
        self.conv1 = conv(3, 16, 3)
        inputs = 16
        for number, channels in enumerate((160, 320, 640), start=1):
            blocks = [WideBlock(inputs, channels, 1 if number == 1 else 2), *(WideBlock(channels, channels, 1) for _ in range(3))]
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
            inputs = channels
        self.bn, self.fc = nn.BatchNorm2d(inputs), nn.Linear(inputs, 10)

    def forward(self, x):
        x = F.relu(self.bn(self.layer3(self.layer2(self.layer1(self.conv1(x))))), inplace=True)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


# The networks by name and stem.
NETWORKS = {
    ("resnet18", "cifar"): lambda: ResNet(BasicBlock, (2, 2, 2, 2), "cifar"),
    ("resnet50", "cifar"): lambda: ResNet(Bottleneck, (3, 4, 6, 3), "cifar"),
    ("resnet50", "imagenet"): lambda: ResNet(Bottleneck, (3, 4, 6, 3), "imagenet"),
    ("wide_resnet", ""): WideResNet,
}
