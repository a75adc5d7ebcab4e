"""Training steps in Python on a GPU: eager, as one CUDA graph, or compiled. worker.py explains the protocol; each answer also has the
seconds until the host had queued the steps, and the peak memory of the device."""

import argparse
import itertools
import time

import torch
import torch.nn.functional as F
from gpu_networks import NETWORKS
from worker import serve


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--stem", default="")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--size", type=int, required=True, help="height and width of the images")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--bfloat16", action="store_true", help="autocast")
    parser.add_argument("--mode", choices=["eager", "graph", "compile"], default="eager")
    parser.add_argument("--write", metavar="FOLDER", help="only write the network's weights and some batches to this folder")
    parser.add_argument("--losses", metavar="FOLDER", help="only print the losses of these batches, from these weights, in float64")
    return parser.parse_args()


class Training:
    def __init__(self, options, network):
        self.options = options
        self.network = network.to(options.device, memory_format=torch.channels_last)
        fused = {"fused": True}
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True, **fused)
        self.call = self.loss_of
        if options.mode == "compile":
            self.call = torch.compile(self.loss_of, mode="reduce-overhead")

    def loss_of(self, images, targets):
        kind = torch.device(self.options.device).type
        # In a graph, a cache of cast weights would keep those of the first step.
        with torch.autocast(kind, torch.bfloat16, enabled=self.options.bfloat16, cache_enabled=self.options.mode == "eager"):
            return F.cross_entropy(self.network(images), targets)

    def step(self, images, targets):
        if self.options.mode == "compile":
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.call(images, targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class GraphOfAStep:
    """A whole step as one CUDA graph, as in PyTorch's documentation."""

    def __init__(self, training, images, targets):
        self.images, self.targets = images.clone(memory_format=torch.preserve_format), targets.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                training.step(self.images, self.targets)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        training.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.loss = training.step(self.images, self.targets)

    def step(self, images, targets):
        self.images.copy_(images)
        self.targets.copy_(targets)
        self.graph.replay()
        return self.loss


def make_batches(options, count):
    torch.manual_seed(0)
    dtype = torch.bfloat16 if options.bfloat16 else torch.float32
    shape = (options.batch_size, 3, options.size, options.size)
    return [(torch.randn(shape).to(options.device, dtype).contiguous(memory_format=torch.channels_last),
             torch.randint(0, 10, shape[:1]).to(options.device)) for _ in range(count)]


def peak_memory(options):
    return torch.cuda.max_memory_allocated() if options.device == "cuda" else 0


def run(options, step, batches, count):
    start = time.perf_counter()
    total = torch.zeros((), device=options.device)
    for images, targets in itertools.islice(batches, count):
        total += step(images, targets)
    queued = time.perf_counter() - start
    if not total.isfinite():
        raise SystemExit("the loss is not finite, so the figures are meaningless")
    return {"queued": queued, "peak_memory": peak_memory(options)}


def print_losses(options, network):
    network.load_state_dict(torch.load(f"{options.losses}/weights.pt", weights_only=True))
    given = torch.load(f"{options.losses}/batches.pt", weights_only=True)
    training = Training(options, network.double())
    images = [x.to(options.device, torch.float64).contiguous(memory_format=torch.channels_last) for x in given["images"]]
    print(*(training.step(x, y.to(options.device)).item() for x, y in zip(images, given["targets"])))


def main():
    options = parse_arguments()
    torch.manual_seed(0)
    network = NETWORKS[options.network, options.stem]()
    if options.write:
        torch.save(network.state_dict(), f"{options.write}/weights.pt")
        batches = make_batches(options, 3)
        torch.save({"images": torch.stack([x.cpu().float() for x, _ in batches]), "targets": torch.stack([y.cpu() for _, y in batches])},
                   f"{options.write}/batches.pt")
        return
    if options.losses:
        print_losses(options, network)
        return
    torch.backends.cudnn.benchmark = True
    training = Training(options, network)
    batches = make_batches(options, 8)
    step = GraphOfAStep(training, *batches[0]).step if options.mode == "graph" else training.step
    endless = itertools.cycle(batches)
    if options.mode != "graph":
        run(options, step, endless, 3)
    serve(vars(options), lambda count: run(options, step, endless, count))


if __name__ == "__main__":
    main()
