"""The CUDA module can be loaded and called without a driver, so that a missing symbol is detected on any machine that builds it."""

import ctypes
import os
import pathlib
import unittest

MODULE = pathlib.Path(os.environ["TRAINER_BINARY"]).with_name("libtrainer_cuda.so")


class CudaModuleTest(unittest.TestCase):
    @unittest.skipUnless(MODULE.exists(), "the module was not built: scripts/setup.sh --cuda fetches what it needs")
    def test_loads_with_all_symbols(self):
        module = ctypes.CDLL(MODULE, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        module.trainer_cuda_module.restype = ctypes.POINTER(ctypes.c_void_p)
        functions = module.trainer_cuda_module()
        num_functions = 7
        self.assertTrue(all(functions[i] for i in range(num_functions)))
        if not pathlib.Path("/proc/driver/nvidia").exists():
            self.assertEqual(ctypes.CFUNCTYPE(ctypes.c_int)(functions[0])(), 0)


if __name__ == "__main__":
    unittest.main()
