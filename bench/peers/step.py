"""Training steps in Python: SGD with momentum, mean cross entropy. The defaults are those of a usual script; the options for threads,
channels_last, bfloat16, the optimizer and the input can make it faster. worker.py explains the protocol."""

import argparse
import itertools
import logging
import time

import torch
import torch.nn.functional as F
from cpu_networks import NETWORKS, torchvision_network
from data import AUGMENTATIONS, Cifar10, batches_of, pil_loader, read_training_set
from torch.utils.data.distributed import DistributedSampler
from worker import serve

# Suppresses the warning that Triton is missing.
logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)
from torch.utils.flop_counter import FlopCounterMode


def make_parser(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--network", required=True, help="a network of cpu_networks.py or torchvision")
    parser.add_argument("--batch-size", type=int, required=True, help="samples per batch of this process")
    parser.add_argument("--input", choices=["pil", "resident", *AUGMENTATIONS], default="pil", help="resident: ready batches in memory")
    parser.add_argument("--image-size", type=int, default=32, help="height and width of the images of ready batches")
    parser.add_argument("--data", help="folder of the CIFAR-10 files, for all inputs except resident")
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--bfloat16", action="store_true", help="autocast")
    parser.add_argument("--optimizer", choices=["default", "loop", "foreach", "fused"], default="default")
    parser.add_argument("--frozen-statistics", action="store_true", help="batch normalisation uses running statistics, of ten batches")
    parser.add_argument("--compile", metavar="MODE", help="of torch.compile")
    parser.add_argument("--evaluate", action="store_true", help="evaluate instead of training")
    parser.add_argument("--item", action="store_true", help="read the loss at every step")
    return parser


def make_network(options):
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    is_small = options.network in NETWORKS and options.image_size == 32
    network = NETWORKS[options.network]() if is_small else torchvision_network(options.network, options.image_size)
    return network.to(memory_format=torch.channels_last) if options.channels_last else network


def make_optimizer(options, parameters):
    choice = {"default": {}, "loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[options.optimizer]
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True, **choice)


def pil_batches(options, rank, world_size):
    dataset = Cifar10(options.data)
    sampler = DistributedSampler(dataset, world_size, rank) if world_size > 1 else None
    loader = pil_loader(dataset, options.batch_size, num_workers=2, sampler=sampler)
    for epoch in itertools.count():
        if sampler:
            sampler.set_epoch(epoch)
        yield from loader


def make_batches(options, rank=0, world_size=1):
    dtype = torch.bfloat16 if options.bfloat16 else torch.float32
    size = options.batch_size
    if options.input == "pil":
        yield from pil_batches(options, rank, world_size)
    elif options.input == "resident":
        layout = torch.channels_last if options.channels_last else torch.contiguous_format
        images = [torch.randn(size, 3, options.image_size, options.image_size).to(dtype).contiguous(memory_format=layout) for _ in range(8)]
        yield from itertools.cycle([(x, torch.randint(0, 10, (size,))) for x in images])
    else:
        images, labels = read_training_set(options.data)
        augmentation = AUGMENTATIONS[options.input](images, dtype, options.channels_last)
        yield from batches_of(augmentation, labels, size, rank, world_size)


def take_steps(options, network, optimizer, batches):
    """Trains on all `batches` and returns the sum of their losses."""
    total = torch.zeros(())
    for images, labels in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16):
            loss = F.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() if options.item else loss.detach()
    return total


def evaluate(options, network, batches):
    """Returns the sum of the losses; also counts correctly classified images, as a validation does."""
    network.eval()
    total, correct = torch.zeros(()), torch.zeros((), dtype=torch.int64)
    with torch.inference_mode():
        for images, labels in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16):
                outputs = network(images)
                total += F.cross_entropy(outputs, labels)
            correct += (outputs.argmax(1) == labels).sum()
    return total


def freeze_statistics(network, batches):
    with torch.no_grad():
        for images, _ in itertools.islice(batches, 10):
            network(images)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()


def check(total):
    if not total.isfinite():
        raise SystemExit("the loss is not finite, so the figures are meaningless")


def flops_per_image(options, network):
    """The FLOPs of matrix products and convolutions with the direct algorithm: those of the forward pass, in training three times, because
    each gradient costs as much. FlopCounterMode itself counts too many for the gradients of convolutions with groups."""
    image = torch.randn(2, 3, options.image_size, options.image_size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(image)
    return counter.get_total_flops() / len(image) * (1 if options.evaluate else 3)


def main():
    options = make_parser(__doc__).parse_args()
    network = make_network(options)
    optimizer = make_optimizer(options, network.parameters())
    batches = make_batches(options)
    if options.frozen_statistics:
        freeze_statistics(network, batches)
    settings = {**vars(options), "threads": torch.get_num_threads(), "flops_per_image": flops_per_image(options, network)}

    if options.compile:
        start = time.monotonic()
        network = torch.compile(network, mode=options.compile)
        take_steps(options, network, optimizer, itertools.islice(batches, 2))
        settings["compile_seconds"] = time.monotonic() - start

    def run(steps):
        some = itertools.islice(batches, steps)
        check(evaluate(options, network, some) if options.evaluate else take_steps(options, network, optimizer, some))

    serve(settings, run)


if __name__ == "__main__":
    main()
