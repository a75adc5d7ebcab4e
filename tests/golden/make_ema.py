"""Writes ema.txt: the averaged parameters of make_optimizers.py's problem under SGD, after each of its updates in float64.

One line per update: the case, then all elements of all averaged parameters of AveragedModel (torch.optim.swa_utils).
tests/unit/optim/ema_test.cpp sets up the same problem. Run from the repository root:
    .deps/venv/bin/python tests/golden/make_ema.py
"""

import pathlib

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from make_optimizers import SHAPES, UPDATES, pattern, set_gradients

DECAY = 0.6


@torch.no_grad()
def warmed_up(averages, params, num_averaged):
    """The average of TensorFlow's ExponentialMovingAverage with num_updates. AveragedModel calls it from the second update on."""
    num_updates = num_averaged.item() - 1
    decay = min(DECAY, (1 + num_updates) / (10 + num_updates))
    torch._foreach_lerp_(averages, params, 1 - decay)


def run(average):
    model = torch.nn.ParameterDict({name: pattern(shape, index) for index, (name, shape) in enumerate(SHAPES.items())})
    averaged = AveragedModel(model, multi_avg_fn=average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rows = []
    for update in range(UPDATES):
        set_gradients(model, update, first_update_of_bias=0)
        optimizer.step()
        averaged.update_parameters(model)
        rows.append([value for name in SHAPES for value in averaged.module[name].detach().flatten().tolist()])
    return rows


def main():
    lines = [f"# torch {torch.__version__.split('+')[0]}, made by make_ema.py"]
    for name, average in {"ema": get_ema_multi_avg_fn(DECAY), "ema_warmup": warmed_up}.items():
        lines += [" ".join([name, *(repr(value) for value in row)]) for row in run(average)]
    pathlib.Path(__file__).with_name("ema.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
