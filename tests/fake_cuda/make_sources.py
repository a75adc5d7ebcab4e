"""Writes what libfake_cuda.so needs beside the sources of this folder, into the current folder: stubs.cpp, the functions that LibTorch's
CUDA libraries need and no source defines, and versions.map, in which the version of a function is the library that LibTorch expects it in.

usage: make_sources.py TORCH_LIBRARY_FOLDER SOURCE...
"""

import pathlib
import re
import subprocess
import sys

TORCH = ["libtorch_cuda.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_nvshmem.so", "libcaffe2_nvrtc.so", "libtorch_python.so"]
# For each symbol version, a pattern of the names of its functions.
VERSIONS = {"libcudart.so.13": r"(__)?cuda", "libcublas.so.13": r"cublas(?!Lt)", "libcublasLt.so.13": r"cublasLt", "libcudnn.so.9": r"cudnn",
            "libnccl.so.2": r"nccl", "libcufft.so.12": r"cufft", "libcusparse.so.12": r"cusparse(?!Lt)", "libcusparseLt.so.0": r"cusparseLt",
            "libcurand.so.10": r"curand", "libcufile.so.0": r"cuFile", "libcupti.so.13": r"cupti", "NVSHMEM": r"nvshmem", "libcuda.so.1": r"cu[A-Z](?!ile)"}
# Functions that start work on the GPU, and functions that create an object: the position of the argument that then points to it.
LAUNCHES = (r"cublas\w*(gemm|gemv|Gemm|dot|Dot|trsm|Batched)\w*$|cublasLtMatmul$|cudnnBackendExecute$|"
            r"cudnn(BatchNormalization|Convolution|Pooling|RNN)(?!\w*(Size|Algorithm))\w*(Forward|Backward)")
CREATES = {r"cublas\w*Create\w*$": 0, r"cudnnCreate\w*$": 0, r"cudnnBackendCreateDescriptor$": 1}
# The outputs of functions: the position of the argument, its type and the value.
ANSWERS = {
    "cublasGetMathMode": [(1, "int", 0)], "cublasGetPointerMode_v2": [(1, "int", 0)], "cublasLtMatmulAlgoGetHeuristic": [(9, "int", 1)],
    "cuDevicePrimaryCtxGetState": [(1, "unsigned", 0), (2, "int", 1)], "cuGetErrorString": [(1, "const char*", '"an error"')],
    "cudaDeviceCanAccessPeer": [(0, "int", 1)], "cudaDeviceGetStreamPriorityRange": [(0, "int", 0), (1, "int", -5)],
    "cudaDriverGetVersion": [(0, "int", 13000)], "cudaRuntimeGetVersion": [(0, "int", 13000)],
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": [(0, "int", 4)], "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": [(0, "int", 4)],
    "cudnnGetBatchNormalizationBackwardExWorkspaceSize": [(10, "size_t", 0)],
    "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize": [(8, "size_t", 0)],
    "cudnnGetBatchNormalizationTrainingExReserveSpaceSize": [(5, "size_t", 0)],
}
RETURNS = {"cudnnGetVersion": 91900, "cudnnGetCudartVersion": 13000}


def needed(library):
    symbols = subprocess.run(["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True).stdout
    return re.findall(r" [Uw] (\w+)", symbols)


def stub(name):
    if re.match(LAUNCHES, name):
        return f'int {name}(void) {{ return fake_cuda_launch("{name}"); }}'
    answers = ANSWERS.get(name, [])
    answers = answers or [(position, "void*", "calloc(1, 64)") for pattern, position in CREATES.items() if re.match(pattern, name)]
    types = {position: f"{kind}*" for position, kind, _ in answers}
    arguments = ", ".join(f"{types.get(i, 'void*')} a{i}" for i in range(max(types, default=-1) + 1)) or "void"
    writes = "".join(f"*a{position} = {value}; " for position, _, value in answers)
    return f"size_t {name}({arguments}) {{ {writes}return {RETURNS.get(name, 0)}; }}"


def main():
    folder, sources = pathlib.Path(sys.argv[1]), map(pathlib.Path, sys.argv[2:])
    defined = set(re.findall(r"FAKE_CUDA_API [^(;]*?\b(\w+)\(", "".join(source.read_text() for source in sources)))
    # Only a torch package has libtorch_python.so.
    names = defined.union(*(needed(folder / library) for library in TORCH if (folder / library).exists()))
    stubs, versions = ["#include <stdlib.h>", 'extern "C" {', "int fake_cuda_launch(const char*);"], []
    for version, pattern in VERSIONS.items():
        functions = sorted(name for name in names if re.match(pattern, name))
        stubs += [stub(name) for name in functions if name not in defined]
        if functions:
            versions.append(f"{version} {{ global: {' '.join(name + ';' for name in functions)} }};")
    pathlib.Path("stubs.cpp").write_text("\n".join([*stubs, "}"]) + "\n")
    pathlib.Path("versions.map").write_text("\n".join([*versions, "FAKE_CUDA { local: *; };"]) + "\n")


main()
