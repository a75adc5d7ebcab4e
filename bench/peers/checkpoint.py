"""Checkpoints between training steps in Python, by one of several methods; worker.py explains the protocol. An answer has lists of seconds,
one entry for each checkpoint: the pause of the training (pause), the time until the file is written (written), steps without a checkpoint
(plain) and during its write (beside), and loading into model and optimizer (load)."""

import concurrent.futures
import os
import pathlib
import shutil
import threading
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from step import check, make_batches, make_network, make_optimizer, make_parser, take_steps
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from worker import serve


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return [tensor for child in children for tensor in tensors_of(child)]


def replaced(value, tensors):
    """`value` with each of its tensors replaced by the next one of `tensors`."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, dict):
        return {key: replaced(child, tensors) for key, child in value.items()}
    return [replaced(child, tensors) for child in value] if isinstance(value, (list, tuple)) else value


def sync_folder(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def save_durably(state, path):
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    sync_folder(path.parent)


class TorchSave:
    """The usual method: when save() returns, the file is not necessarily on the disk."""

    def save(self, state, path):
        torch.save(state, path)
        self.written_at = time.perf_counter()

    def finish(self):
        """The time at which the checkpoint was written."""
        return self.written_at

    def load(self, path, state):
        return torch.load(path, weights_only=True)


class EndTime:
    """The time at which a future is done."""

    def __init__(self, future):
        self.future, self.called = future, threading.Event()
        future.add_done_callback(self.keep)

    def keep(self, _):
        self.time = time.perf_counter()
        self.called.set()

    def wait(self):
        self.future.result()
        self.called.wait()
        return self.time


class Durable(TorchSave):
    def save(self, state, path):
        save_durably(state, path)
        self.written_at = time.perf_counter()


class Background(TorchSave):
    """The fastest method that was found: a copy into reused memory, written by a thread."""

    def __init__(self):
        self.thread = concurrent.futures.ThreadPoolExecutor(1)
        self.buffers = None

    def save(self, state, path):
        tensors = tensors_of(state)
        self.buffers = self.buffers or [torch.empty_like(tensor) for tensor in tensors]
        torch._foreach_copy_(self.buffers, tensors)
        self.written = EndTime(self.thread.submit(save_durably, replaced(state, iter(self.buffers)), path))

    def finish(self):
        return self.written.wait()

    def load(self, path, state):
        return torch.load(path, weights_only=True, mmap=True)


class Distributed:
    """torch.distributed.checkpoint.async_save."""

    def __init__(self, kind, make_stager=lambda: None):
        self.kind, self.make_stager = kind, make_stager

    def save(self, state, path):
        stager = self.make_stager()  # each save closes its stager
        response = dcp.async_save(state, checkpoint_id=path, async_checkpointer_type=self.kind, async_stager=stager)
        self.written = EndTime(getattr(response, "upload_completion", response))

    def finish(self):
        return self.written.wait()

    def load(self, path, state):
        dcp.load(state, checkpoint_id=path)
        return state


def shared_memory_stager():
    return DefaultStager(StagingOptions(use_pinned_memory=False, use_shared_memory=True, use_async_staging=False, use_non_blocking_copy=False))


def make_method(name):
    if name.startswith("dcp"):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return {
        "torch_save": TorchSave,
        "durable": Durable,
        "background": Background,
        "dcp_thread": lambda: Distributed(AsyncCheckpointerType.THREAD),
        "dcp_process": lambda: Distributed(AsyncCheckpointerType.PROCESS, shared_memory_stager),
    }[name]()


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--method", choices=["torch_save", "durable", "background", "dcp_thread", "dcp_process"], required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=1, help="number of steps before a checkpoint, and during its write")
    options = parser.parse_args()
    network = make_network(options)
    optimizer = make_optimizer(options, network.parameters())
    batches = make_batches(options)
    method = make_method(options.method)
    state = lambda: {"model": network.state_dict(), "optimizer": optimizer.state_dict()}

    def train():
        check(take_steps(options, network, optimizer, [next(batches) for _ in range(options.steps)]))

    def load(path):
        loaded = method.load(path, state())
        network.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])

    paths = (options.folder / f"step_{number}" for number in range(10**9))

    def run(count):
        answer = {key: [] for key in ("pause", "written", "plain", "beside", "load")}

        def measure(key, work, *arguments):
            start = time.perf_counter()
            work(*arguments)
            answer[key].append(time.perf_counter() - start)
            return start

        for _ in range(count):
            path = next(paths)
            train()  # a warm-up, because loading slows down the next steps
            measure("plain", train)
            start = measure("pause", lambda: method.save(state(), path))
            measure("beside", train)
            answer["written"].append(method.finish() - start)
            measure("load", load, path)
            remove(path)
        return answer

    serve({**vars(options), "folder": str(options.folder), "threads": torch.get_num_threads()}, run)


if __name__ == "__main__":
    main()
