"""CIFAR-10's binary files for the Python peers: as single PIL images or tensors, or as one tensor with batched augmentation.

All do the usual augmentation: pad by 4 pixels of zeros, crop a random 32x32 window, mirror with probability 1/2, then
(x / 255 - mean) / std. The random numbers differ from the program's, but their distribution is the same.
"""

import pathlib

import numpy
import torch
import torch.nn.functional as F
import torchvision.transforms as T
import torchvision.transforms.v2 as V2
from PIL import Image

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
SIZE, PADDING = 32, 4
SHIFTS, PADDED = 2 * PADDING + 1, SIZE + 2 * PADDING


def read_training_set(root):
    """uint8 images [N, 3, 32, 32] and int64 labels [N]."""
    files = sorted(pathlib.Path(root).glob("data_batch_*.bin")) or sorted(pathlib.Path(root).glob("cifar-10-batches-bin/data_batch_*.bin"))
    if not files:
        raise SystemExit(f"{root} contains no data_batch_*.bin")
    records = torch.from_numpy(numpy.concatenate([numpy.fromfile(file, dtype=numpy.uint8) for file in files])).view(-1, 1 + 3 * SIZE * SIZE)
    return records[:, 1:].reshape(-1, 3, SIZE, SIZE), records[:, 0].long()


class Cifar10(torch.utils.data.Dataset):
    """Like torchvision.datasets.CIFAR10: an array in memory; each read makes a PIL image of its part and transforms it."""

    def __init__(self, root, transforms=()):
        """`transforms`: applied after crop and flip."""
        self.transform = T.Compose([T.RandomCrop(SIZE, PADDING), T.RandomHorizontalFlip(), *transforms, T.ToTensor(), T.Normalize(MEAN, STD)])
        images, labels = read_training_set(root)
        self.images, self.labels = images.permute(0, 2, 3, 1).contiguous().numpy(), labels.tolist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class TensorCifar10(torch.utils.data.Dataset):
    """Each read transforms a uint8 tensor, with RandAugment after crop and flip, into a normalised float32 tensor."""

    def __init__(self, root):
        self.transform = V2.Compose([V2.RandomCrop(SIZE, PADDING), V2.RandomHorizontalFlip(), V2.RandAugment(), V2.ToDtype(torch.float32, scale=True),
                                     V2.Normalize(MEAN, STD)])
        self.images, labels = read_training_set(root)
        self.labels = labels.tolist()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


def pil_loader(dataset, batch_size, num_workers, sampler=None):
    """A DataLoader that shuffles, unless a sampler defines the order."""
    return torch.utils.data.DataLoader(
        dataset, batch_size, shuffle=sampler is None, sampler=sampler, num_workers=num_workers, drop_last=True
    )


class Augmentation:
    """Augments whole batches: draws random positions, then gathers the windows as a tensor of the given dtype and layout. Each image and
    its mirror image are stored padded, so that crop and flip are one gather from a view of all windows."""

    def __init__(self, images, dtype, channels_last):
        self.num_images, self.dtype, self.channels_last = len(images), dtype, channels_last
        padded = F.pad(images, (PADDING,) * 4)
        self.store(torch.cat([padded, padded.flip(3)]))

    def __call__(self, indices):
        n = len(indices)
        mirrored = torch.randint(0, 2, (n,))
        return self.gather(indices + mirrored * self.num_images, torch.randint(0, SHIFTS, (n,)), torch.randint(0, SHIFTS, (n,)))

    def layout(self):
        return torch.channels_last if self.channels_last else torch.contiguous_format

    @staticmethod
    def scale_and_shift():
        mean, std = torch.tensor(MEAN), torch.tensor(STD)
        return 1 / (255 * std), -mean / std


class Planes(Augmentation):
    """uint8, [3, 40, 40]: windows of each plane."""

    def store(self, padded):
        self.windows = padded.unfold(2, SIZE, 1).unfold(3, SIZE, 1)
        self.scale, self.shift = (v.view(3, 1, 1) for v in self.scale_and_shift())

    def gather(self, indices, y, x):
        images = self.windows[indices, :, y, x].float()
        return images.mul_(self.scale).add_(self.shift).to(self.dtype).contiguous(memory_format=self.layout())


class Pixels(Augmentation):
    """uint8, [40, 40, 4] with an unused last channel, so that a pixel is gathered as one 32-bit word."""

    def store(self, padded):
        pixels = F.pad(padded, (0, 0, 0, 0, 0, 1)).permute(0, 2, 3, 1).contiguous().view(torch.int32).squeeze(3)
        self.windows = pixels.unfold(1, SIZE, 1).unfold(2, SIZE, 1)
        self.scale, self.shift = (v.view(3, 1, 1) for v in self.scale_and_shift())

    def gather(self, indices, y, x):
        pixels = self.windows[indices, y, x].view(torch.uint8).view(-1, SIZE, SIZE, 4)
        images = pixels[..., :3].permute(0, 3, 1, 2).to(torch.float32, memory_format=self.layout())
        return images.mul_(self.scale).add_(self.shift).to(self.dtype)


class Rows(Augmentation):
    """uint8, [40, 40, 3]: rows of 96 bytes."""

    def store(self, padded):
        rows = padded.permute(0, 2, 3, 1).contiguous()
        row = 3 * PADDED
        self.windows = rows.as_strided((len(rows), SHIFTS, SHIFTS, SIZE, 3 * SIZE), (PADDED * row, row, 3, row, 1))
        self.scale, self.shift = (v.repeat(SIZE) for v in self.scale_and_shift())

    def gather(self, indices, y, x):
        rows = self.windows[indices, y, x].float().mul_(self.scale).add_(self.shift).to(self.dtype)
        return rows.view(-1, SIZE, SIZE, 3).permute(0, 3, 1, 2).contiguous(memory_format=self.layout())


class Normalized(Augmentation):
    """Stored normalised in the given dtype: for float32 4 times the memory of Planes, but a batch needs only the gather."""

    def store(self, padded):
        scale, shift = (v.view(3, 1, 1) for v in self.scale_and_shift())
        images = torch.empty(padded.shape, dtype=self.dtype, memory_format=self.layout())
        for part, source in zip(images.split(1000), padded.split(1000)):
            part.copy_(source * scale + shift)
        if self.channels_last:
            row = 3 * PADDED
            self.windows = images.as_strided((len(images), SHIFTS, SHIFTS, SIZE, 3 * SIZE), (PADDED * row, row, 3, row, 1))
        else:
            self.windows = images.unfold(2, SIZE, 1).unfold(3, SIZE, 1)

    def gather(self, indices, y, x):
        if self.channels_last:
            return self.windows[indices, y, x].view(-1, SIZE, SIZE, 3).permute(0, 3, 1, 2)
        return self.windows[indices, :, y, x]


AUGMENTATIONS = {"planes": Planes, "pixels": Pixels, "rows": Rows, "normalized": Normalized}


def batches_of(augmentation, labels, batch_size, rank=0, world_size=1):
    """A rank's batches of endless shuffled epochs; an incomplete last batch is dropped."""
    generator = torch.Generator().manual_seed(0)
    while True:
        for indices in torch.randperm(len(labels), generator=generator)[rank::world_size].split(batch_size):
            if len(indices) == batch_size:
                yield augmentation(indices), labels[indices]
