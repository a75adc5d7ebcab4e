"""Training batches in Python, without a network, in one thread; worker.py explains the protocol, data.py the pipelines."""

import argparse
import itertools

import torch
import torchvision
from data import AUGMENTATIONS, Cifar10, TensorCifar10, batches_of, pil_loader, read_training_set
from worker import serve


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", choices=["pil", "pil_rand_augment", "tensor_rand_augment", *AUGMENTATIONS], required=True)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--data", required=True, help="folder of the CIFAR-10 files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format

    def batches():
        datasets = {
            "pil": Cifar10,
            "pil_rand_augment": lambda root: Cifar10(root, [torchvision.transforms.RandAugment()]),
            "tensor_rand_augment": TensorCifar10,
        }
        if options.pipeline in datasets:
            loader = pil_loader(datasets[options.pipeline](options.data), options.batch_size, num_workers=0)
            while True:
                yield from loader
        images, labels = read_training_set(options.data)
        yield from batches_of(AUGMENTATIONS[options.pipeline](images, dtype, options.channels_last), labels, options.batch_size)

    source = batches()

    def run(steps):
        for images, _ in itertools.islice(source, steps):
            images = images.to(dtype).contiguous(memory_format=layout)  # needed only by pipelines of single images
        assert images.dtype == dtype and images.is_contiguous(memory_format=layout)

    serve(vars(options), run)


if __name__ == "__main__":
    main()
