"""The fastest script found for the first step of ResNet-18 (stem for 32x32, batch 32): only torch, without torch.nn modules. The fused
update is called directly, because the first use of a torch.optim class imports torch._dynamo. Prints "step" and the Unix time at which the
step ended.

--strip replaces torch's table of shapes for compilation, a third of the time of `import torch`, by an empty module. This depends on
torch's internals and is not realistic; it shows the lower limit.
"""

import gc
import os
import sys
import time
import types

gc.disable()  # imports create many objects and little garbage
if "--strip" in sys.argv:
    sys.modules["torch._meta_registrations"] = types.ModuleType("torch._meta_registrations")
import torch

with open("/proc/cpuinfo") as cpuinfo:
    flags = next(line for line in cpuinfo if line.startswith("flags")).split()
bfloat16 = "avx512_bf16" in flags or "amx_bf16" in flags
torch.set_num_threads(len(os.sched_getaffinity(0)))
parameters = []


def parameter(tensor):
    parameters.append(tensor.requires_grad_())
    return tensor


def conv_norm(inputs, outputs, size, stride):
    weight = torch.empty(outputs, inputs, size, size, memory_format=torch.channels_last).normal_(0, (2 / (outputs * size * size)) ** 0.5)
    weight, scale, shift = parameter(weight), parameter(torch.ones(outputs)), parameter(torch.zeros(outputs))
    mean, var = torch.zeros(outputs), torch.ones(outputs)
    return lambda x: torch.batch_norm(torch.conv2d(x, weight, None, stride, size // 2), scale, shift, mean, var, True, 0.1, 1e-5, False)


def block(inputs, outputs, stride):
    first, second = conv_norm(inputs, outputs, 3, stride), conv_norm(outputs, outputs, 3, 1)
    shortcut = (lambda x: x) if inputs == outputs else conv_norm(inputs, outputs, 1, stride)
    return lambda x: second(first(x).relu_()).add_(shortcut(x)).relu_()


stem = conv_norm(3, 64, 3, 1)
blocks = [block(64, 64, 1), block(64, 64, 1), block(64, 128, 2), block(128, 128, 1)]
blocks += [block(128, 256, 2), block(256, 256, 1), block(256, 512, 2), block(512, 512, 1)]
bound = 512**-0.5
fc_weight = parameter(torch.empty(10, 512).uniform_(-bound, bound))
fc_bias = parameter(torch.empty(10).uniform_(-bound, bound))

images = torch.randint(0, 256, (32, 3, 32, 32), dtype=torch.uint8)
labels = torch.randint(0, 10, (32,))
x = images.to(torch.float32, memory_format=torch.channels_last).sub_(120).div_(64)
with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
    x = stem(x).relu_()
    for apply in blocks:
        x = apply(x)
    loss = torch.nn.functional.cross_entropy(torch.nn.functional.linear(x.mean((2, 3)), fc_weight, fc_bias), labels)
gradients = list(torch.autograd.grad(loss, parameters))
with torch.no_grad():
    buffers = [torch.empty_like(p) for p in parameters]
    sgd = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "weight_decay": 5e-4, "nesterov": True, "maximize": False}
    torch._fused_sgd_(parameters, gradients, buffers, **sgd, is_first_step=True)
assert loss.isfinite()
print("step", time.time(), flush=True)
sys.stdin.read()  # until bench.py has read the peak memory
