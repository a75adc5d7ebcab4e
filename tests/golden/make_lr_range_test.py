"""Writes lr_range_test.json into its own folder: losses of learning-rate range tests, and what they lead to by the rules of Lightning's
lr_find (smoothing 0.98 with bias correction, end at four times the least smoothed loss, the steepest fall by torch.gradient without the
first 10 points and the last one), and a tenth of the learning rate with the least smoothed loss. The learning rate grows from 1e-7 to 10.
"""
import json
import pathlib

import torch

SMOOTHING = 0.98


def range_test(losses):
    lrs = [1e-7 * (10 / 1e-7) ** (step / (len(losses) - 1)) for step in range(len(losses))]
    average, least, smoothed, diverged = 0.0, float("inf"), [], False
    for step, loss in enumerate(losses):
        average = SMOOTHING * average + (1 - SMOOTHING) * loss
        smoothed.append(average / (1 - SMOOTHING ** (step + 1)))
        least = min(least, smoothed[-1])
        diverged = smoothed[-1] > 4 * least
        if diverged:
            break
    slopes = torch.gradient(torch.tensor(smoothed[10:-1], dtype=torch.float64))[0]
    return {
        "losses": losses,
        "smoothed": smoothed,
        "diverged": diverged,
        "steepest_lr": lrs[10 + int(slopes.argmin())],
        "tenth_of_minimum_lr": lrs[smoothed.index(min(smoothed))] / 10,
    }


def losses(count, fall_at, rise_at):
    """A loss that falls from 2.3 towards 1 around one step and grows quickly after another."""
    steps = torch.arange(count, dtype=torch.float64)
    noise = 0.05 * torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    return (2.3 - 1.3 * torch.sigmoid((steps - fall_at) / 4) + torch.exp(((steps - rise_at) / 4).clamp(max=12)) + noise).tolist()


cases = [range_test(losses(100, 55, 80)), range_test(losses(60, 30, 200)), range_test(losses(40, 12, 25))]
pathlib.Path(__file__).with_name("lr_range_test.json").write_text(json.dumps(cases) + "\n")
