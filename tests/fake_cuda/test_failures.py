"""Failures of a GPU: the messages, and the rank that they name."""

import json
import re
import time
import unittest

from fake_gpu_case import SMALL, FakeGpuCase
from gpu_case import launcher

# Error numbers of CUDA and NCCL.
INVALID_VALUE, OUT_OF_MEMORY, OLD_DRIVER, ILLEGAL_ADDRESS, CAPTURE_INVALIDATED = 1, 2, 35, 700, 901
UNHANDLED_CUDA_ERROR = 1
ILLEGAL = "CUDA error: an illegal memory access was encountered"
# If these calls fail in cuDNN's search for a fast convolution, LibTorch continues without their results.
LEFT_OUT = {"cudaEventCreateWithFlags"}


class OneGpuTest(FakeGpuCase):
    def fail(self, failure, *overrides, **variables):
        return self.start(*SMALL, *overrides, variables={"FAKE_CUDA_FAIL": failure, **variables})

    def assert_one_sentence(self, run, status, text):
        """The error is one line, followed only by advice on how to continue."""
        self.assertEqual(run.status, status, run.err)
        lines = run.err[run.err.index("error: "):].splitlines()
        self.assertRegex(lines[0], text)
        self.assertLessEqual(len(lines), 2, run.err)
        if len(lines) == 2:
            self.assertRegex(lines[1], "^(the same command resumes from|no checkpoint has been saved)")

    def test_every_call_that_fails(self):
        """Each function of the CUDA runtime fails permanently, from its first call or from the middle of the run on."""
        counts = self.count(*SMALL)[0]["counts"]
        functions = {name for name in counts if name.startswith("cuda") or name == "kernel"} - LEFT_OUT
        self.assertGreater(len(functions), 10)
        for function in sorted(functions):
            for call in sorted({1, (counts[function] + 1) // 2}):
                with self.subTest(f"{function}, call {call}"):
                    run = self.fail(f"{function}:{call}:{ILLEGAL_ADDRESS}:sticky")
                    self.assert_one_sentence(run, 2 if "runtime.device" in run.err else 1,
                                             "an illegal memory access was encountered|has no access to a GPU")

    def test_a_call_that_fails_once(self):
        self.assert_one_sentence(self.fail(f"cudaStreamSynchronize:60:{ILLEGAL_ADDRESS}"), 1, rf"error: (.*: )?{ILLEGAL}$")

    def test_a_gpu_that_is_lost_in_a_step(self):
        run = self.fail(f"kernel:300:{ILLEGAL_ADDRESS}:sticky", "checkpoint.every_steps=1")
        self.assert_one_sentence(run, 1, rf"error: step 0: {ILLEGAL}")

    def test_too_little_memory(self):
        run = self.start(*SMALL, variables={"FAKE_CUDA_MEMORY": str(30 << 20)})
        self.assert_one_sentence(run, 1, "error: out of memory in step 0 at batch_size 8; raise training.accumulation_steps, and unless ")

    def test_kernels_that_cannot_be_compiled(self):
        run = self.start(*SMALL, "runtime.fuse=on", variables={"FAKE_CUDA_MAJOR": "3"})
        self.assert_one_sentence(run, 1, r"error: the kernels of runtime.fuse: on cannot be compiled for this GPU \(NVRTC_ERROR_\w+ with "
                                         r"--gpu-architecture=sm_30: .*\); set runtime.fuse: auto$")

    def test_compiled_kernels_that_cannot_be_loaded(self):
        for function in ("cudaLibraryLoadData", "cudaLibraryGetKernel"):
            with self.subTest(function):
                run = self.fail(f"{function}:1:{ILLEGAL_ADDRESS}:sticky", "runtime.fuse=on")
                self.assert_one_sentence(run, 1, rf"error: step 0: {ILLEGAL}$")

    # How recording a graph can fail, and the reason in the message.
    GRAPHS = {f"cudaStreamBeginCapture:1:{INVALID_VALUE}": "CUDA error: unknown error",
              f"cudaMalloc:0:{OUT_OF_MEMORY}": "out of memory",
              f"cudaStreamEndCapture:1:{CAPTURE_INVALIDATED}": "CUDA error: unknown error",
              f"cudaGraphInstantiateWithFlags:1:{OUT_OF_MEMORY}": "out of memory",
              f"cudaGraphLaunch:1:{OUT_OF_MEMORY}": "out of memory"}
    # Eight steps; dropout uses the generator that is in use while a graph is recorded.
    RECORDED = ["dataset.num_train=32", "model={name: wide_resnet, depth: 10, width: 1, dropout: 0.3}"]

    def test_a_graph_that_cannot_be_recorded(self):
        """Under auto, the training continues without a graph."""
        expected = self.count(*SMALL, *self.RECORDED)[0]["counts"]["kernel"]
        for failure, reason in self.GRAPHS.items():
            text = f"a step of this network cannot be recorded as a CUDA graph ({reason})"
            with self.subTest(failure):
                stats = self.folder / failure.replace(":", "_")
                stats.mkdir()
                run = self.fail(failure, *self.RECORDED, "runtime.cuda_graph=auto", FAKE_CUDA_STATS=str(stats))
                self.assertEqual(run.status, 0, run.err)
                self.assertEqual(run.err.count(f"{text}; the training runs without one"), 1, run.err)
                self.assertNotIn("FAKE CUDA", run.err)
                self.assertEqual([event["message"] for event in run.events("warning")], [f"{text}; the training runs without one"])
                self.assertEqual(len(run.losses()), 8)
                kernels = json.loads((stats / "rank_0.json").read_text())["counts"]["kernel"]
                # A few more than without the attempt, which write the learning rate and the batch to tensors that keep their addresses.
                self.assertGreaterEqual(kernels, expected)
                run = self.fail(failure, *self.RECORDED, "runtime.cuda_graph=on")
                self.assert_one_sentence(run, 1, re.escape(f"{text}; set runtime.cuda_graph: off"))

    def test_advice_about_memory_fits_a_graph(self):
        run = self.start(*SMALL, "runtime.cuda_graph=on", variables={"FAKE_CUDA_MEMORY": str(30 << 20)})
        self.assert_one_sentence(run, 1, "error: out of memory in step 0 at batch_size 8; set runtime.cuda_graph: off, raise "
                                         "training.accumulation_steps, and unless ")

    def test_a_driver_that_is_too_old(self):
        run = self.fail(f"cudaGetDeviceCount:1:{OLD_DRIVER}")
        self.assert_one_sentence(run, 2, "error: runtime.device: cuda is set, but CUDA cannot be used: CUDA driver version is insufficient for "
                                         "CUDA runtime version; ")


class RanksTest(FakeGpuCase):
    def fail(self, failure, *overrides):
        """Rank 1 of two fails, and the launch ends long before a rank would count as hanging."""
        begin = time.monotonic()
        run = self.start(*SMALL, "distributed.hang_seconds=60", *overrides, launcher=launcher(2), num_gpus=2,
                         variables={"FAKE_CUDA_FAIL": failure, "FAKE_CUDA_FAIL_RANK": "1"})
        self.assertLess(time.monotonic() - begin, 30, run.err)
        return run

    def assert_blamed(self, run, status, reason):
        """Rank 1 reports why it failed; rank 0 and the launcher report that it failed."""
        self.assertEqual(run.status, status, run.err)
        self.assertRegex(run.err, rf"(?m)^rank 1: error: {reason}$")
        self.assertRegex(run.err, rf"(?m)^error: rank 1 \(process \d+\) ended with exit code {status}; its last lines:\n"
                                  rf"  (rank 1: )?error: {reason}$")
        self.assertNotIn("rank 0 (", run.err)

    def test_nccl_that_cannot_connect(self):
        # The ranks create two NCCL communicators, one after the other.
        for number in (1, 2):
            with self.subTest(number):
                self.assert_blamed(self.fail(f"ncclCommInitRankConfig:{number}:{UNHANDLED_CUDA_ERROR}"), 1,
                                   r"NCCL: unhandled cuda error .*: Cuda failure 2 'out of memory'")

    def test_a_collective_that_fails(self):
        self.assert_blamed(self.fail(f"ncclAllReduce:30:{UNHANDLED_CUDA_ERROR}"), 1, r"out of memory in step \d at batch_size 4; .*")

    def test_a_gpu_that_is_lost(self):
        self.assert_blamed(self.fail(f"kernel:700:{ILLEGAL_ADDRESS}:sticky"), 1, rf"step \d: {ILLEGAL}(; then .*)?")

    def test_too_little_memory(self):
        self.assert_blamed(self.fail(f"cudaMalloc:4:{OUT_OF_MEMORY}:sticky"), 1, r"out of memory in step 0 at batch_size 4; .*")

    def test_a_rank_that_never_comes(self):
        """Rank 1 ends before the GPUs are connected; then no rank waits for it."""
        run = self.fail(f"cudaGetDeviceCount:1:{OLD_DRIVER}")
        self.assertEqual(run.status, 2, run.err)
        self.assertEqual(len(re.findall("CUDA driver version is insufficient", run.err)), 1, run.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
