"""Writes resized_crops.txt: the distribution of the boxes that torchvision's RandomResizedCrop draws, for
tests/unit/data/resized_crop_box_test.cpp.

Each line: height and width of the image, scale, ratio, and histograms of 20,000 boxes: of their height and of their width (in eighths of
the image's), of the top offset and of the left offset (in quarters of the largest possible one).
"""

import pathlib

import torch
import torchvision.transforms as T

NUM_BOXES = 20_000
CASES = [
    (40, 60, (0.08, 1.0), (3 / 4, 4 / 3)),
    (100, 20, (0.08, 1.0), (3 / 4, 4 / 3)),
    (64, 64, (0.5, 1.0), (1.0, 1.0)),
    (7, 9, (0.02, 0.3), (0.5, 2.0)),
]

torch.manual_seed(0)
with open(pathlib.Path(__file__).with_name("resized_crops.txt"), "w") as out:
    for height, width, scale, ratio in CASES:
        image = torch.empty(3, height, width)
        counts = [[0] * 8, [0] * 8, [0] * 4, [0] * 4]
        for _ in range(NUM_BOXES):
            top, left, box_height, box_width = T.RandomResizedCrop.get_params(image, list(scale), list(ratio))
            counts[0][(box_height - 1) * 8 // height] += 1
            counts[1][(box_width - 1) * 8 // width] += 1
            counts[2][top * 4 // (height - box_height + 1)] += 1
            counts[3][left * 4 // (width - box_width + 1)] += 1
        print(height, width, *scale, *ratio, *(count for row in counts for count in row), file=out)
