"""Writes lr_schedules.txt: the learning rates of torch.optim.lr_scheduler at every step, for an optimizer with lr 1.

One line per schedule: its name, then the value at step 0, 1, … Run from the repository root:
    .deps/venv/bin/python tests/golden/make_lr_schedules.py
"""

import pathlib
import warnings

import torch
from torch.optim import lr_scheduler as lrs

STEPS = 24
STEPS_PER_EPOCH = 4
WARMUP = 6
COVERED = STEPS - WARMUP


def warmup(optimizer, start):
    return lrs.LinearLR(optimizer, start_factor=start, end_factor=1.0, total_iters=WARMUP)


def after_warmup(optimizer, start, schedule):
    return lrs.SequentialLR(optimizer, [warmup(optimizer, start), schedule], milestones=[WARMUP])


# name -> (the schedule, the number of values, including step STEPS if the schedule has a value there)
SCHEDULES = {
    "constant": (lambda o: lrs.LambdaLR(o, lambda step: 1.0), STEPS),
    "step": (lambda o: lrs.StepLR(o, step_size=2 * STEPS_PER_EPOCH, gamma=0.2), STEPS),
    "multistep": (lambda o: lrs.MultiStepLR(o, milestones=[4, 10, 20], gamma=0.3), STEPS),  # epochs 1, 2.5, 5
    "cosine": (lambda o: lrs.CosineAnnealingLR(o, T_max=STEPS), STEPS + 1),
    "cosine_final": (lambda o: lrs.CosineAnnealingLR(o, T_max=STEPS, eta_min=0.05), STEPS + 1),
    "linear": (lambda o: lrs.LinearLR(o, start_factor=0.8, end_factor=0.1, total_iters=STEPS), STEPS + 1),
    "polynomial": (lambda o: lrs.PolynomialLR(o, total_iters=STEPS, power=2.5), STEPS + 1),
    "onecycle": (lambda o: lrs.OneCycleLR(o, 1.0, total_steps=STEPS, cycle_momentum=False), STEPS),
    "onecycle_keys": (
        lambda o: lrs.OneCycleLR(o, 1.0, total_steps=STEPS, pct_start=0.45, div_factor=10, final_div_factor=50, cycle_momentum=False),
        STEPS,
    ),
    "onecycle_without_rise": (lambda o: lrs.OneCycleLR(o, 1.0, total_steps=STEPS, pct_start=0.0, cycle_momentum=False), STEPS),
    "warmup_constant": (lambda o: warmup(o, 0.25), STEPS),
    "warmup_cosine": (lambda o: after_warmup(o, 0.1, lrs.CosineAnnealingLR(o, T_max=COVERED)), STEPS + 1),
    "warmup_polynomial": (lambda o: after_warmup(o, 0.1, lrs.PolynomialLR(o, total_iters=COVERED, power=2.0)), STEPS + 1),
    # no milestone is in the warm-up, so the product is the warm-up followed by the schedule
    "warmup_multistep": (lambda o: lrs.ChainedScheduler([warmup(o, 0.5), lrs.MultiStepLR(o, milestones=[8, 16], gamma=0.1)]), STEPS),
    "warmup_step": (lambda o: lrs.ChainedScheduler([warmup(o, 0.5), lrs.StepLR(o, step_size=12, gamma=0.1)]), STEPS),
}


def values(make_schedule, count):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = make_schedule(optimizer)
    result = []
    for _ in range(count):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return result


# The observed values, which the test in C++ repeats. Each line of the file has the learning rate after each value.
# name -> (the mode, the scheduler's arguments)
VALUES = [2.0, 1.5, 1.5, 1.499, 1.6, 1.4, float("nan"), 1.41, 1.395, 1.39, 1.5, 1.6, 1.2, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3]
PLATEAUS = {
    "reduce_on_plateau": ("min", {"factor": 0.1, "patience": 2}),
    "reduce_on_plateau_max": ("max", {"factor": 0.5, "patience": 1, "threshold": 0.01}),
    "reduce_on_plateau_absolute": ("min", {"factor": 0.5, "patience": 0, "threshold": 0.05, "threshold_mode": "abs"}),
    "reduce_on_plateau_cooldown": ("min", {"factor": 0.5, "patience": 0, "cooldown": 2, "min_lr": 0.2}),
}


def rates_of_plateau(mode, options):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = lrs.ReduceLROnPlateau(optimizer, mode, **options)
    rates = []
    for value in VALUES:
        scheduler.step(value)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def main():
    warnings.simplefilter("ignore")  # step() is called once more than there are values
    lines = [f"# torch {torch.__version__.split('+')[0]}, made by make_lr_schedules.py"]
    for name, (make_schedule, count) in SCHEDULES.items():
        lines.append(" ".join([name, *(repr(float(value)) for value in values(make_schedule, count))]))
    for name, (mode, options) in PLATEAUS.items():
        lines.append(" ".join([name, *(repr(rate) for rate in rates_of_plateau(mode, options))]))
    pathlib.Path(__file__).with_name("lr_schedules.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
