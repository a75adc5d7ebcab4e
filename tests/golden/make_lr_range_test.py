"""Writes lr_range_test.json into its own folder: losses of learning-rate range tests, and how Lightning's and fastai's lr_find smooth them
(0.98 with bias correction) and stop (at four times the least smoothed loss).
"""
import json
import pathlib

import torch

SMOOTHING = 0.98


def range_test(losses):
    average, least, smoothed, diverged = 0.0, float("inf"), [], False
    for step, loss in enumerate(losses):
        average = SMOOTHING * average + (1 - SMOOTHING) * loss
        smoothed.append(average / (1 - SMOOTHING ** (step + 1)))
        least = min(least, smoothed[-1])
        diverged = smoothed[-1] > 4 * least
        if diverged:
            break
    return {
        "losses": losses,
        "smoothed": smoothed,
        "diverged": diverged,
    }


def losses(count, fall_at, rise_at):
    """A loss that falls from 2.3 towards 1 around one step and grows quickly after another."""
    steps = torch.arange(count, dtype=torch.float64)
    noise = 0.05 * torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    return (2.3 - 1.3 * torch.sigmoid((steps - fall_at) / 4) + torch.exp(((steps - rise_at) / 4).clamp(max=12)) + noise).tolist()


cases = [range_test(losses(100, 55, 80)), range_test(losses(60, 30, 200)), range_test(losses(40, 12, 25))]
pathlib.Path(__file__).with_name("lr_range_test.json").write_text(json.dumps(cases) + "\n")
