#!/usr/bin/env python3
"""Tests which headers cmake/CudaHeaders.cmake chooses for the CUDA module."""

import subprocess
import tempfile
import unittest
from pathlib import Path

MODULE = Path(__file__).resolve().parents[3] / "cmake" / "CudaHeaders.cmake"
HEADERS = ("crt/host_defines.h", "cublas_v2.h", "cusparse.h", "cusolverDn.h")


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class CudaHeadersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trainer-cuda-headers-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        write(self.root / "torch/lib/libc10_cuda.so", "libcudart.so.13\n")
        write(self.root / "nvidia/nccl/lib/libnccl.so.2", "NCCL version 2.28.9+cuda13.0\n")

    def add_cuda(self, name, version=13000, headers=HEADERS):
        write(self.root / name / "cuda_runtime_api.h", f"#define CUDART_VERSION  {version}\n")
        for header in headers:
            write(self.root / name / header)

    def add_nccl(self, name, version="2.28"):
        major, minor = version.split(".")
        write(self.root / name / "nccl.h", f"#define NCCL_MAJOR {major}\n#define NCCL_MINOR {minor}\n")

    def find(self, *folders):
        script = self.root / "find.cmake"
        script.write_text(f'include("{MODULE}")\ntrainer_find_cuda_headers("{self.root}/torch" {" ".join(str(self.root / f) for f in folders)})\n'
                          'message("${CUDA_INCLUDE_DIR}|${NCCL_INCLUDE_DIR}|${CUDA_REFUSALS}")\n')
        run = subprocess.run(["cmake", "-P", script], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return [part.replace(f"{self.root}/", "") for part in run.stderr.strip().split("|")]

    def test_an_incomplete_folder_is_passed_over(self):
        self.add_cuda("wheel", headers=("cublas_v2.h",))
        self.add_cuda("toolkit")
        self.add_nccl("toolkit")
        self.assertEqual(self.find("wheel", "toolkit"),
                         ["toolkit", "toolkit", "wheel has no crt/host_defines.h, cusparse.h, cusolverDn.h"])

    def test_the_first_folder_that_fits_is_taken(self):
        for name in ("wheel", "toolkit"):
            self.add_cuda(name)
        self.add_nccl("nccl")
        self.assertEqual(self.find("wheel", "nccl", "toolkit"), ["wheel", "nccl", ""])

    def test_other_versions_are_refused(self):
        self.add_cuda("toolkit", version=12060)
        self.add_nccl("toolkit", "2.18")
        self.assertEqual(self.find("toolkit"),
                         ["", "", "toolkit belongs to CUDA 12, but LibTorch was built for CUDA 13;"
                                  "toolkit/nccl.h belongs to NCCL 2.18, but LibTorch was built with NCCL 2.28"])

    def test_nccl_inside_libtorch(self):
        (self.root / "nvidia/nccl/lib/libnccl.so.2").unlink()
        write(self.root / "torch/lib/libtorch_cuda.so", "NCCL version 2.27.5+cuda13.0\n")
        self.add_cuda("toolkit")
        self.add_nccl("toolkit", "2.27")
        self.assertEqual(self.find("toolkit"), ["toolkit", "toolkit", ""])

    def test_what_is_missing_is_named(self):
        self.assertEqual(self.find("toolkit"), ["", "", "no cuda_runtime_api.h was found"])
        self.add_cuda("toolkit")
        self.assertEqual(self.find("toolkit"), ["toolkit", "", "no nccl.h was found"])


if __name__ == "__main__":
    unittest.main()
