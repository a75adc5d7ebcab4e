"""The training steps of step.py on several ranks: DistributedDataParallel over gloo. Rank and world size are in the environment variables
that torchrun sets; rank 0 uses the protocol of worker.py and sends the number of steps to the others."""

import itertools
import os

import torch
import torch.distributed as dist
from step import check, make_batches, make_network, make_optimizer, make_parser, take_steps
from torch.nn.parallel import DistributedDataParallel
from worker import serve


def serve_together(settings, run):
    """Calls serve() on rank 0, which sends the number of steps to the other ranks; 0 ends them."""
    count = torch.zeros(1, dtype=torch.int64)

    def run_everywhere(steps):
        count.fill_(steps)
        dist.broadcast(count, 0)
        run(steps)

    if dist.get_rank() == 0:
        serve(settings, run_everywhere)
        dist.broadcast(count.zero_(), 0)
        return
    while True:
        dist.broadcast(count, 0)
        if not count.item():
            return
        run(count.item())


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--tuned", action="store_true", help="gradient_as_bucket_view and static_graph")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    network = make_network(options)
    network = DistributedDataParallel(network, gradient_as_bucket_view=options.tuned, static_graph=options.tuned)
    optimizer = make_optimizer(options, network.parameters())
    batches = make_batches(options, rank, world_size)

    def run(steps):
        total = take_steps(options, network, optimizer, itertools.islice(batches, steps))
        dist.all_reduce(total)  # until all ranks are done
        check(total)

    serve_together({**vars(options), "threads": torch.get_num_threads(), "ranks": world_size}, run)
    # Exits without the process group's destructor, which can deadlock with a thread that waits for the interpreter's lock.
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
