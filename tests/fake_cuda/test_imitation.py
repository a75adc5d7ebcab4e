"""The imitated GPU detects the faults that it was made to detect; nearly every test makes such a fault."""

import os
import select
import subprocess
import sys
import time
import unittest

from fake_gpu_case import SMALL, FakeGpuCase
from gpu_case import launcher

# Functions of libfake_cuda.so, called from Python.
HEADER = """
import ctypes
cuda = ctypes.CDLL(None)
"""


def run_python(code, *args, **options):
    return subprocess.Popen([sys.executable, "-c", HEADER + code, *args], stderr=subprocess.PIPE, text=True, **options)


# The arguments are the rank, the collective, and the name of the communicator, by which both processes find each other.
COLLECTIVE = """
import sys
rank, name = int(sys.argv[1]), sys.argv[2]
class Id(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 128)]
comm = ctypes.c_void_p()
assert cuda.ncclCommInitRank(ctypes.byref(comm), 2, Id(sys.argv[3].encode()), rank) == 0
memory = ctypes.c_void_p()
cuda.cudaMalloc(ctypes.byref(memory), 4096)
if name == "ncclAllReduce":
    cuda.ncclAllReduce(memory, memory, ctypes.c_size_t(8), 7, 0, comm, None)
else:
    cuda.ncclBroadcast(memory, memory, ctypes.c_size_t(8), 7, 0, comm, None)
while cuda.cudaStreamQuery(None) != 0:
    pass
"""


class ImitationTest(FakeGpuCase):
    def test_the_host_cannot_touch_memory_of_the_device(self):
        for use in ("memory[0] = 1", "print(memory[0])"):
            with self.subTest(use), run_python("address = ctypes.c_void_p()\ncuda.cudaMalloc(ctypes.byref(address), 64)\n"
                                               f"memory = (ctypes.c_char * 64).from_address(address.value)\n{use}\n") as process:
                process.communicate(timeout=60)
                self.assertEqual(process.returncode, -11)

    def test_memory_that_is_written_before_its_copy_is_made(self):
        code = """
pinned, device = ctypes.c_void_p(), ctypes.c_void_p()
cuda.cudaHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(64), 0)
cuda.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(64))
cuda.cudaMemcpyAsync(device, pinned, ctypes.c_size_t(64), 1, None)
(ctypes.c_char * 64).from_address(pinned.value)[0] = 1
cuda.cudaDeviceSynchronize()
"""
        with run_python(code) as process:
            _, err = process.communicate(timeout=60)
        self.assertEqual(err, "FAKE CUDA: a race: 64 bytes of pinned memory were written before their copy was made\n")

    def test_batches_that_are_written_before_the_gpu_has_copied_them(self):
        """Without the program's waits, there are races, with batches of the rank itself and of another rank."""
        for num_ranks, overrides in ((1, []), (2, ["dataset.distribution=broadcast"])):
            with self.subTest(num_ranks=num_ranks):
                process = self.begin(*(launcher(num_ranks) if num_ranks > 1 else ()), "--config", "configs/quickstart.yaml", "--run-dir",
                                     self.folder / f"run_{num_ranks}", *SMALL, "dataset.num_train=80", "logging.every_steps=1000", *overrides, "runtime.device=cuda",
                                     visible=num_ranks, variables={"FAKE_CUDA_SKIP_WAITS": "1"})
                with process:
                    _, err = process.communicate(timeout=120)
                self.assertRegex(err, r"FAKE CUDA: a race: \d+ bytes of pinned memory were written before their copy was made\n")

    def call_collectives(self, *names):
        """Starts two ranks, each of which calls one of these collectives."""
        variables = {**os.environ, "FAKE_CUDA_FOLDER": str(self.folder)}
        return [run_python(COLLECTIVE, str(rank), name, "/fake_nccl_test", env=variables) for rank, name in enumerate(names)]

    def test_ranks_that_call_the_same_collective(self):
        for process in self.call_collectives("ncclAllReduce", "ncclAllReduce"):
            with process:
                self.assertEqual(process.communicate(timeout=60)[1], "")
                self.assertEqual(process.returncode, 0)

    def test_ranks_that_call_different_collectives(self):
        """The mismatch is reported, and the collectives do not end, as with NCCL."""
        processes = self.call_collectives("ncclAllReduce", "ncclBroadcast")
        ready, _, _ = select.select([process.stderr for process in processes], [], [], 60)
        time.sleep(0.2)
        for process in processes:
            self.assertIsNone(process.poll())
            process.kill()
        report = "".join(process.communicate()[1] for process in processes)
        self.assertTrue(ready, "no report")
        self.assertRegex(report, r"FAKE CUDA: collective 1 of a communicator: rank \d calls nccl\w+ of 8 elements of type 7.* \(from .*\), "
                                 r"rank \d calls nccl\w+ of 8 elements")


if __name__ == "__main__":
    unittest.main(verbosity=2)
