"""Writes optimizers.txt: the parameters of a small problem under torch.optim, after each of five updates in float64.

One line per update: the case, then all elements of all parameters. Nothing is written unless the default and the fused implementation
agree. tests/unit/optim/golden.h sets up the same problem. Run from the repository root:
    .deps/venv/bin/python tests/golden/make_optimizers.py
"""

import pathlib

import torch

UPDATES = 5
SHAPES = {"weight": (2, 3, 2, 2), "bias": (3,), "unused": (2,)}


def pattern(shape, offset):
    """Multiples of 1/16 between -1 and 1, which are exact in every language."""
    count = torch.Size(shape).numel()
    return torch.tensor([((7 * i + 5 * offset) % 33 - 16) / 16 for i in range(count)], dtype=torch.float64).reshape(shape)


def set_gradients(params, update, first_update_of_bias):
    """Sets the gradients of a quadratic loss whose minimum moves; `unused` never gets a gradient."""
    params["weight"].grad = 0.5 * params["weight"].detach() + pattern(SHAPES["weight"], 3 + update)
    if update >= first_update_of_bias:
        params["bias"].grad = 0.5 * params["bias"].detach() + pattern(SHAPES["bias"], 4 + update)


def run(make_optimizer, first_update_of_bias=0, fused=None):
    params = {name: pattern(shape, index).requires_grad_() for index, (name, shape) in enumerate(SHAPES.items())}
    optimizer = make_optimizer(params, fused)
    base_lrs = [group["lr"] for group in optimizer.param_groups]
    rows = []
    for update in range(UPDATES):
        for group, base_lr in zip(optimizer.param_groups, base_lrs):
            group["lr"] = base_lr * (1 - update / 8)
        set_gradients(params, update, first_update_of_bias)
        if isinstance(optimizer, Sam):
            optimizer.ascend()
            set_gradients(params, update, first_update_of_bias)
        optimizer.step()
        rows.append(torch.cat([param.detach().flatten() for param in params.values()]))
    return torch.stack(rows)


def one_group(kind, **options):
    return lambda params, fused: kind(list(params.values()), fused=fused, **options)


def two_groups(kind, weight_decay, **options):
    def make(params, fused):
        groups = [
            {"params": [params["weight"]], "weight_decay": weight_decay},
            {"params": [params["bias"], params["unused"]], "weight_decay": 0.0},
        ]
        return kind(groups, fused=fused, **options)

    return make


def own_options(kind, lr, decay_key="weight_decay", **options):
    """`bias` has a quarter of the learning rate and a weight decay of 0.125."""

    def make(params, fused):
        groups = [{"params": [params["weight"], params["unused"]]}, {"params": [params["bias"]], "lr": lr / 4, decay_key: 0.125}]
        return kind(groups, fused=fused, lr=lr, **options)

    return make


class RMSprop(torch.optim.RMSprop):
    """Has no fused implementation; its foreach implementation is used instead."""

    def __init__(self, params, fused, **options):
        super().__init__(params, foreach=fused, **options)


class Sam(torch.optim.SGD):
    """Sharpness-aware minimization (Foret et al. 2021, equation 2) over torch.optim.SGD; two passes per step."""

    def __init__(self, params, rho, **options):
        super().__init__(params, **options)
        self.rho = rho

    @torch.no_grad()
    def ascend(self):
        params = [param for group in self.param_groups for param in group["params"] if param.grad is not None]
        self.originals = [(param, param.clone()) for param in params]
        norm = torch.cat([param.grad.flatten() for param in params]).norm()
        for param in params:
            param += self.rho * param.grad / norm

    @torch.no_grad()
    def step(self):
        for param, original in self.originals:
            param.copy_(original)
        super().step()


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for weights with four dimensions, SGD with Nesterov momentum for the other parameters."""

    DEFAULTS = {
        "lr": 0.02,
        "momentum": 0.95,
        "nesterov": True,
        "ns_steps": 5,
        "normalize_weights": False,
        "linear_lr": 0.1,
        "bias_lr": 0.1,
        "sgd_momentum": 0.9,
        "sgd_weight_decay": 0.0,
    }

    def __init__(self, params, fused, **options):
        super().__init__(params, {**self.DEFAULTS, **options})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    (self.update_convolution if param.dim() == 4 else self.update_other)(param, group)

    def direction(self, param, gradient, momentum, nesterov):
        state = self.state[param]
        state["momentum_buffer"] = momentum * state.get("momentum_buffer", 0) + gradient
        return gradient + momentum * state["momentum_buffer"] if nesterov else state["momentum_buffer"]

    def update_convolution(self, param, group):
        direction = self.direction(param, param.grad, group["momentum"], group["nesterov"])
        if group["normalize_weights"]:
            param *= param.size(0) ** 0.5 / param.norm()
        # A polynomial of odd powers of a matrix applies the polynomial to its singular values.
        u, values, v = torch.linalg.svd(direction.flatten(1), full_matrices=False)
        values /= values.square().sum().sqrt() + 1e-7
        for _ in range(group["ns_steps"]):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        param -= group["lr"] * (u @ values.diag() @ v).reshape(param.shape)

    def update_other(self, param, group):
        full_lr = group["linear_lr"] if param.dim() >= 2 else group["bias_lr"]
        gradient = param.grad + group["sgd_weight_decay"] / full_lr * param
        direction = self.direction(param, gradient, group["sgd_momentum"], nesterov=True)
        param -= full_lr * group["lr"] / self.defaults["lr"] * direction


SGD, Adam, AdamW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW

# name -> (optimizer, first update in which `bias` has a gradient)
CASES = {
    "sgd": (one_group(SGD, lr=0.1), 0),
    "sgd_decay": (one_group(SGD, lr=0.1, weight_decay=0.02), 0),
    "sgd_momentum": (one_group(SGD, lr=0.1, momentum=0.9, dampening=0.25, weight_decay=0.02), 0),
    "sgd_nesterov": (one_group(SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.02), 0),
    "sgd_late_gradient": (one_group(SGD, lr=0.1, momentum=0.9, dampening=0.5), 2),
    "sgd_two_groups": (two_groups(SGD, 0.125, lr=0.1, momentum=0.9), 0),
    "adam": (one_group(Adam, lr=0.01), 0),
    "adam_decay": (one_group(Adam, lr=0.01, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1), 0),
    "adam_late_gradient": (one_group(Adam, lr=0.01), 2),
    "adamw": (one_group(AdamW, lr=0.01), 0),
    "adamw_late_gradient": (one_group(AdamW, lr=0.01, weight_decay=0.1), 2),
    "adamw_two_groups": (two_groups(AdamW, 0.5, lr=0.01), 0),
    "sgd_own_options": (own_options(SGD, lr=0.1, momentum=0.9, weight_decay=0.02), 0),
    "adam_own_options": (own_options(Adam, lr=0.01, betas=(0.8, 0.95)), 0),
    "adamw_own_options": (own_options(AdamW, lr=0.01), 0),
    "rmsprop": (one_group(RMSprop), 0),
    "rmsprop_options": (one_group(RMSprop, lr=0.02, alpha=0.8, eps=1e-3, weight_decay=0.1, momentum=0.9, centered=True), 0),
    "rmsprop_late_gradient": (one_group(RMSprop, momentum=0.5), 2),
    "rmsprop_own_options": (own_options(RMSprop, lr=0.02, momentum=0.9, centered=True), 0),
    "sam": (one_group(Sam, rho=0.05, lr=0.1), 0),
    "sam_momentum": (one_group(Sam, rho=0.5, lr=0.1, momentum=0.9, dampening=0.25, weight_decay=0.02), 0),
    "sam_late_gradient": (one_group(Sam, rho=0.5, lr=0.1, momentum=0.9), 2),
    "sam_own_options": (own_options(Sam, rho=0.5, lr=0.1, momentum=0.9), 0),
    "muon": (one_group(Muon), 0),
    "muon_options": (
        one_group(
            Muon,
            lr=0.24,
            momentum=0.6,
            nesterov=False,
            ns_steps=3,
            normalize_weights=True,
            linear_lr=0.6,
            bias_lr=0.05,
            sgd_momentum=0.85,
            sgd_weight_decay=0.01,
        ),
        0,
    ),
    "muon_late_gradient": (one_group(Muon, sgd_weight_decay=0.05), 2),
    "muon_own_options": (own_options(Muon, lr=0.02, decay_key="sgd_weight_decay"), 0),
}

# PyTorch's fused SGD fails if only some of the parameters have momentum buffers; the class Muon has one implementation.
WITHOUT_FUSED = {"sgd_late_gradient", "sam_late_gradient", "muon", "muon_options", "muon_late_gradient", "muon_own_options"}


def main():
    lines = [f"# torch {torch.__version__.split('+')[0]}, made by make_optimizers.py"]
    for name, (make_optimizer, first_update_of_bias) in CASES.items():
        expected = run(make_optimizer, first_update_of_bias)
        if name not in WITHOUT_FUSED:
            torch.testing.assert_close(run(make_optimizer, first_update_of_bias, fused=True), expected, rtol=0, atol=1e-14)
        lines += [" ".join([name, *(repr(value) for value in row)]) for row in expected.tolist()]
    pathlib.Path(__file__).with_name("optimizers.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
