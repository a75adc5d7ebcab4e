#pragma once
// The door to the room cuda/, which is a shared library of its own: a process without a GPU never loads it, nor LibTorch's CUDA half.

#include <cstdint>

#include "base/log.h"

namespace trainer::device {

// What the module offers; filled by cuda/cuda_module.cpp.
struct CudaModule {
  int (*device_count)();
  int (*compute_capability_major)(int device);
  // Most bytes that the caching allocator has held for tensors at once.
  uint64_t (*peak_memory)(int device);
};

// Name and type of the module's one exported function.
inline constexpr const char* kCudaModuleEntry = "trainer_cuda_module";
using CudaModuleEntry = const CudaModule* (*)();

// Opens the module where there is an NVIDIA driver, and tells LibTorch of CUDA by that; nullptr elsewhere. To be called before any
// other use of LibTorch and before threads start, since LibTorch asks for its CUDA half once and remembers the answer. Never closed.
// A driver without a module, or a module that cannot be opened, is a warning that says what to do.
const CudaModule* open_cuda_module(Logger& logger);

}  // namespace trainer::device
