"""The CUDA module can be loaded and called without a driver, so that a missing symbol is detected on any machine that builds it. And with a
driver that cannot be used. TRAINER_BINARY is the program."""

import ctypes
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = pathlib.Path(os.environ["TRAINER_BINARY"]).with_name("libtrainer_cuda.so")


@unittest.skipUnless(MODULE.exists(), "the module was not built: scripts/setup.sh --cuda fetches what it needs")
class CudaModuleTest(unittest.TestCase):
    def test_loads_with_all_symbols(self):
        module = ctypes.CDLL(MODULE, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        module.trainer_cuda_module.restype = ctypes.POINTER(ctypes.c_void_p)
        functions = module.trainer_cuda_module()
        num_functions = 8
        self.assertTrue(all(functions[i] for i in range(num_functions)))
        if not pathlib.Path("/proc/driver/nvidia").exists():
            self.assertEqual(ctypes.CFUNCTYPE(ctypes.c_int)(functions[0])(), 0)

    def train_with_broken_driver(self, device):
        with tempfile.TemporaryDirectory(prefix="trainer-driver-") as folder:
            # A library that has none of the driver's functions.
            pathlib.Path(folder, "libcuda.so.1").symlink_to(MODULE)
            environment = {**os.environ, "LD_LIBRARY_PATH": folder, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{folder}/loaded"}
            run = subprocess.run([os.environ["TRAINER_BINARY"], "--config", ROOT / "configs" / "demo_linear.yaml", "--run-dir", f"{folder}/run",
                                  "training.epochs=1", f"runtime.device={device}"], cwd=ROOT, env=environment, capture_output=True, text=True)
            loads_cuda = any("libtorch_cuda.so" in file.read_text(errors="replace") for file in pathlib.Path(folder).glob("loaded.*"))
        return run.returncode, run.stderr, loads_cuda

    def test_a_driver_that_cannot_be_used(self):
        reason = ("CUDA driver version is insufficient for CUDA runtime version; nvidia-smi shows the driver's version and whether it works")
        status, output, loads_cuda = self.train_with_broken_driver("auto")
        self.assertEqual((status, loads_cuda), (0, True), output)
        self.assertIn(f"warning: there is an NVIDIA driver, but training runs on the CPU: {reason}\n", output)
        status, output, _ = self.train_with_broken_driver("cuda")
        self.assertEqual((status, output), (2, f"error: runtime.device: cuda is set, but CUDA cannot be used: {reason}\n"))
        status, output, loads_cuda = self.train_with_broken_driver("cpu")
        self.assertEqual((status, loads_cuda), (0, False), output)
        self.assertNotIn("warning", output)


if __name__ == "__main__":
    unittest.main()
