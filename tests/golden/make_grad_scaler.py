#!/usr/bin/env python3
"""Writes grad_scaler.json: traces of torch.amp.GradScaler with Python's default (unfused) optimizers, which the program has to reproduce.

A case trains two float32 parameters on the CPU, a weight of (5, 9) and a bias of (3,), with the initial values pattern(shape, 0) and
pattern(shape, 1). Step i has the loss ((weight * 0.25 + pattern(…, 3 + i)) * weight).sum(), plus the same for the bias with
pattern(…, 4 + i) from step `first_step_of_bias` on. Each step: scale, backward, write the case's `injections` (step, parameter, flat
index, value) into the gradients, unscale, clip to the norm `clip` if the case has it, step, update. `scaler` and `optimizer` are keyword
arguments; the `name` of `optimizer` is its kind.

`trace` has these values after each step: scale, growth tracker, 1 if the step was skipped, and over all parameters sum(|p_i|) and
sum((i + 1) |p_i|) in float64. `parameters` has all their elements at the end.

Scale, tracker and skipped steps have to be identical. Parameters may differ by 1e-6 of the largest one: the program's fused kernels
round in another order than the unfused ones, by about 1e-7 per step, and the convex loss reduces the difference again.
"""

import argparse
import json
import pathlib
import sys

import torch

STEPS = 50
SHAPES = {"weight": (5, 9), "bias": (3,)}

# The scale would grow at the end of steps 5, 9, 13, …; step 9 overflows instead.
INJECTIONS = [
    [0, "weight", 3, "inf"],
    [1, "weight", 44, "nan"],
    [9, "bias", 1, "-inf"],
    [20, "weight", 17, "nan"],
    [20, "bias", 0, "inf"],
    [21, "bias", 2, "nan"],
    [33, "weight", 0, "-inf"],
]
SCALER = {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 4}
SGD = {"name": "sgd", "lr": 0.1}
MOMENTUM = {**SGD, "momentum": 0.9, "weight_decay": 0.02}
ADAMW = {"name": "adamw", "lr": 0.02, "weight_decay": 0.1}

CASES = {
    "sgd": {"optimizer": SGD},
    "sgd_momentum": {"optimizer": MOMENTUM},
    "sgd_dampening": {"optimizer": {**MOMENTUM, "dampening": 0.25}},
    "sgd_nesterov": {"optimizer": {**MOMENTUM, "nesterov": True}},
    # The bias has its first gradient in step 9, which overflows and is skipped.
    "sgd_late_bias": {"optimizer": {**MOMENTUM, "dampening": 0.5}, "first_step_of_bias": 9},
    "adam": {"optimizer": {"name": "adam", "lr": 0.02}, "clip": 0.5},
    "adamw": {"optimizer": ADAMW},
    "adamw_late_bias": {"optimizer": ADAMW, "first_step_of_bias": 9},
    # Scales that are not powers of two.
    "odd_factors": {"optimizer": MOMENTUM, "scaler": {**SCALER, "init_scale": 1000.0, "growth_factor": 1.7, "backoff_factor": 0.3}},
    # Gradients overflow only because of the scale, which cannot grow beyond float32.
    "overflow": {"optimizer": SGD, "scaler": {**SCALER, "init_scale": 3e38}, "injections": []},
}


def cases():
    defaults = {"scaler": SCALER, "first_step_of_bias": 0, "injections": INJECTIONS}
    return [{"name": name, "steps": STEPS, **defaults, **case} for name, case in CASES.items()]


def pattern(shape, offset):
    """Multiples of 1/16 between -1 and 1, which are exact in every language."""
    count = torch.Size(shape).numel()
    return torch.tensor([((7 * i + 5 * offset) % 33 - 16) / 16 for i in range(count)]).reshape(shape)


def loss_of(case, params, step):
    loss = ((params["weight"] * 0.25 + pattern(SHAPES["weight"], 3 + step)) * params["weight"]).sum()
    if step < case["first_step_of_bias"]:
        return loss
    return loss + ((params["bias"] * 0.25 + pattern(SHAPES["bias"], 4 + step)) * params["bias"]).sum()


def train(case):
    """The case with its results: trace and parameters."""
    params = {name: pattern(shape, index).requires_grad_() for index, (name, shape) in enumerate(SHAPES.items())}
    options = {key: value for key, value in case["optimizer"].items() if key != "name"}
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[case["optimizer"]["name"]]
    optimizer = make(list(params.values()), **options)
    scaler = torch.amp.GradScaler(device="cpu", **case["scaler"])
    trace = []
    for step in range(case["steps"]):
        optimizer.zero_grad()
        scaler.scale(loss_of(case, params, step)).backward()
        for when, name, index, value in case["injections"]:
            if when == step and params[name].grad is not None:
                params[name].grad.view(-1)[index] = float(value)
        scaler.unscale_(optimizer)
        [found_inf] = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
        skipped = int(found_inf.item())
        if "clip" in case:
            torch.nn.utils.clip_grad_norm_(list(params.values()), case["clip"])
        scaler.step(optimizer)
        scaler.update()
        values = torch.cat([param.detach().flatten() for param in params.values()]).double().abs()
        places = torch.arange(1, len(values) + 1, dtype=torch.float64)
        trace.append([scaler.get_scale(), scaler._get_growth_tracker(), skipped, values.sum().item(), (places * values).sum().item()])
    parameters = torch.cat([param.detach().flatten() for param in params.values()]).tolist()
    return {**case, "trace": trace, "parameters": parameters}


def text_of(results):
    """JSON with one line for each key of a case."""
    text = json.dumps({"torch": torch.__version__, "cases": results}, indent=1)
    for depth in (5, 4):
        text = text.replace(",\n" + depth * " ", ", ").replace("[\n" + depth * " ", "[").replace("\n" + (depth - 1) * " " + "]", "]")
    return text + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true", help="print instead of writing grad_scaler.json")
    arguments = parser.parse_args()
    text = text_of([train(case) for case in cases()])
    if arguments.live:
        sys.stdout.write(text)
    else:
        pathlib.Path(__file__).with_name("grad_scaler.json").write_text(text)


if __name__ == "__main__":
    main()
