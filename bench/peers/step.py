"""Training steps in Python: SGD with momentum, mean cross entropy. The default settings are those of the usual script, every option is
a step towards the fastest one; see worker.py for how it is driven."""

import argparse
import itertools
import pathlib
import sys

import torch
import torch.nn.functional as F
from data import AUGMENTATIONS, Cifar10, batches_of, pil_loader, read_training_set
from worker import serve

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
from networks import NETWORKS


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--input", choices=["pil", "resident", *AUGMENTATIONS], default="pil", help="resident: ready batches in memory")
    parser.add_argument("--data", help="folder of the CIFAR-10 files, for all inputs but resident")
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--bfloat16", action="store_true", help="autocast")
    parser.add_argument("--optimizer", choices=["default", "loop", "foreach", "fused"], default="default")
    parser.add_argument("--item", action="store_true", help="read the loss at every step")
    return parser.parse_args()


def make_batches(options):
    dtype = torch.bfloat16 if options.bfloat16 else torch.float32
    size = options.batch_size
    if options.input == "pil":
        loader = pil_loader(Cifar10(options.data), size, num_workers=2)
        while True:
            yield from loader
    elif options.input == "resident":
        layout = torch.channels_last if options.channels_last else torch.contiguous_format
        images = [torch.randn(size, 3, 32, 32).to(dtype).contiguous(memory_format=layout) for _ in range(8)]
        yield from itertools.cycle([(x, torch.randint(0, 10, (size,))) for x in images])
    else:
        images, labels = read_training_set(options.data)
        yield from batches_of(AUGMENTATIONS[options.input](images, dtype, options.channels_last), labels, size)


def main():
    options = parse_arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    network = NETWORKS[options.network]()
    if options.channels_last:
        network = network.to(memory_format=torch.channels_last)
    choice = {"default": {}, "loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[options.optimizer]
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True, **choice)
    batches = make_batches(options)

    def run(steps):
        total = torch.zeros(())
        for images, labels in itertools.islice(batches, steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16):
                loss = F.cross_entropy(network(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() if options.item else loss.detach()
        if not total.isfinite():
            raise SystemExit("the loss is not finite: the figures would mean nothing")

    serve({**vars(options), "threads": torch.get_num_threads()}, run)


if __name__ == "__main__":
    main()
