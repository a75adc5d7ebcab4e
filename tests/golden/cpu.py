"""The properties of the CPU on which the choice of kernels depends."""

import pathlib

import torch

KERNEL_FLAGS = ("amx_bf16", "amx_tile", "avx2", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx512f", "avx_vnni", "fma")


def info():
    """The fields of the first CPU in /proc/cpuinfo."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def kind():
    """Vendor, LibTorch's CPU capability, and those of KERNEL_FLAGS that the CPU has: "GenuineIntel AVX512 avx2 avx512_bf16 … fma"."""
    flags = info()["flags"].split()
    return " ".join([info()["vendor_id"], torch.backends.cpu.get_cpu_capability(), *(flag for flag in KERNEL_FLAGS if flag in flags)])


def model():
    return info()["model name"]


def has_fast_bfloat16():
    return bool({"avx512_bf16", "amx_bf16"} & set(info()["flags"].split()))
