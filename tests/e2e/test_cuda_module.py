"""The CUDA module can be loaded and called without a driver, so that any machine that builds it detects a missing symbol. Also the messages
when a GPU cannot be used. TRAINER_BINARY is the program."""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "testing"))
from gpus import visible_gpus  # noqa: E402
from troubleshooting import plants  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = pathlib.Path(os.environ["TRAINER_BINARY"]).with_name("libtrainer_cuda.so")
HAS_GPU = bool(visible_gpus()[0])
needs_module = unittest.skipUnless(MODULE.exists(), "the module was not built: scripts/setup.sh --cuda fetches what it needs")


class CudaModuleTest(unittest.TestCase):
    def train(self, *overrides, broken_driver=False):
        """Returns exit code, stderr and whether LibTorch's CUDA library was loaded."""
        with tempfile.TemporaryDirectory(prefix="trainer-driver-") as folder:
            environment = {**os.environ, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{folder}/loaded"}
            if broken_driver:
                # A libcuda.so.1 that lacks the driver's functions.
                pathlib.Path(folder, "libcuda.so.1").symlink_to(MODULE)
                environment["LD_LIBRARY_PATH"] = folder
            run = subprocess.run([os.environ["TRAINER_BINARY"], "--config", ROOT / "configs" / "demo_linear.yaml", "--run-dir", f"{folder}/run",
                                  "training.epochs=1", *overrides], cwd=ROOT, env=environment, capture_output=True, text=True)
            loads_cuda = any("libtorch_cuda.so" in file.read_text(errors="replace") for file in pathlib.Path(folder).glob("loaded.*"))
        return run.returncode, run.stderr, loads_cuda

    @needs_module
    def test_loads_with_all_symbols(self):
        module = ctypes.CDLL(MODULE, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        module.trainer_cuda_module.restype = ctypes.POINTER(ctypes.c_void_p)
        functions = module.trainer_cuda_module()
        num_functions = 8
        self.assertTrue(all(functions[i] for i in range(num_functions)))
        if not HAS_GPU:
            self.assertEqual(ctypes.CFUNCTYPE(ctypes.c_int)(functions[0])(), 0)

    @needs_module
    @plants("The NVIDIA driver cannot be used", "The same, with `runtime.device: cuda`")
    def test_a_driver_that_cannot_be_used(self, warning, refusal):
        reason = {"TEXT": "CUDA driver version is insufficient for CUDA runtime version"}
        status, output, loads_cuda = self.train("runtime.device=auto", broken_driver=True)
        self.assertEqual((status, loads_cuda), (0, True), output)
        warning.check(self, output, **reason)
        status, output, _ = self.train("runtime.device=cuda", broken_driver=True)
        refusal.check(self, output, status, **reason)
        status, output, loads_cuda = self.train("runtime.device=cpu", broken_driver=True)
        self.assertEqual((status, loads_cuda), (0, False), output)
        self.assertNotIn("warning", output)

    @unittest.skipIf(HAS_GPU, "there is a GPU")
    @plants("There is no GPU, with `runtime.device: cuda`")
    def test_no_gpu(self, row):
        status, output, _ = self.train("runtime.device=cuda")
        row.check(self, output, status)

    @plants("A setting of the GPU's allocator is wrong")
    def test_a_wrong_allocator_setting(self, row):
        status, output, _ = self.train("runtime.cuda_allocator=expandable_segment:True", "runtime.device=cpu")
        row.check(self, output, status)


if __name__ == "__main__":
    unittest.main()
