"""Writes what torchvision's transforms of batches give, for tests/unit/data/batch_transforms_test.cpp.

batch_transforms.txt: results with fixed random numbers. Each line: the list in YAML, the dtype, the seed of PyTorch's CPU generator, and
the FNV-1a (64 bits) of the bytes of the mixed images and of the probabilities of the classes. The images are contiguous, [5, 3, 7, 6].

batch_distributions.txt: how often each result of the random mixing occurs. Each line: the list in YAML, and results with their counts among
2,000. The batch is two images of one channel and 5 x 6 pixels, the first all 0 and the second all 1. A result is the second image after
mixing, with one digit for each pixel, its first decimal. Results that occur fewer than 10 times are omitted.
"""

import collections
import pathlib

import torch
import torch.nn.functional as F
from checksum import fnv1a
from torchvision.transforms import v2

LISTS = {
    "mixup": v2.MixUp(),
    "mixup: {alpha: 0.2}": v2.MixUp(alpha=0.2),
    "mixup: {alpha: 3}": v2.MixUp(alpha=3.0),
    "cutmix": v2.CutMix(),
    "cutmix: {alpha: 0.3}": v2.CutMix(alpha=0.3),
    "mixup: {alpha: 0.2}, cutmix": v2.RandomChoice([v2.MixUp(alpha=0.2), v2.CutMix()]),
}
MEASURED = ("mixup: {alpha: 0.2}", "cutmix", "mixup: {alpha: 0.2}, cutmix")
NUM_SEEDS = 6
NUM_SAMPLES = 2_000
FEWEST = 10


def mixed(transform, dtype, seed):
    images = (torch.arange(5 * 3 * 7 * 6) * 37 % 256).to(dtype).div(255).view(5, 3, 7, 6)
    labels = torch.arange(5) * 3 % 4
    torch.manual_seed(seed)
    return transform(images, F.one_hot(labels, 4).to(dtype))


def digits(transform):
    images = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 5, 6).clone()
    image = transform(images, torch.eye(2))[0][1]
    return "".join(str(min(int(value * 10), 9)) for value in image.flatten().tolist())


folder = pathlib.Path(__file__).parent
with open(folder / "batch_transforms.txt", "w") as out:
    for yaml, transform in LISTS.items():
        for dtype in (torch.float32, torch.float64):
            for seed in range(NUM_SEEDS):
                hashes = [fnv1a(tensor.numpy().tobytes()) for tensor in mixed(transform, dtype, seed)]
                print(yaml, str(dtype).removeprefix("torch."), seed, *hashes, sep="\t", file=out)

torch.manual_seed(0)
with open(folder / "batch_distributions.txt", "w") as out:
    for yaml in MEASURED:
        counts = collections.Counter(digits(LISTS[yaml]) for _ in range(NUM_SAMPLES))
        frequent = [f"{result}:{count}" for result, count in counts.most_common() if count >= FEWEST]
        print(yaml, " ".join(frequent), sep="\t", file=out)
