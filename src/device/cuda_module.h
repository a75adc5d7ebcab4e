#pragma once
// The door to the room cuda/, which is a shared library of its own: a process without a GPU never loads it, nor LibTorch's CUDA half.

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "base/log.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainer::device {

// What the module offers; filled by cuda/cuda_module.cpp.
struct CudaModule {
  int (*device_count)() = nullptr;
  int (*compute_capability_major)(int device) = nullptr;
  // Most bytes that the caching allocator has held for tensors at once.
  uint64_t (*peak_memory)(int device) = nullptr;
  // "0000:3b:00.0"
  std::string (*pci_bus_id)(int device) = nullptr;
  void (*set_device)(int device) = nullptr;
  // Collective; connects when it is first used.
  c10::intrusive_ptr<c10d::Backend> (*make_nccl_backend)(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::Device device,
                                                         std::chrono::milliseconds timeout) = nullptr;
};

// Name and type of the module's one exported function.
inline constexpr const char* kCudaModuleEntry = "trainer_cuda_module";
using CudaModuleEntry = const CudaModule* (*)();

// Opens the module where there is an NVIDIA driver, and tells LibTorch of CUDA by that; nullptr elsewhere. To be called before any
// other use of LibTorch and before threads start, since LibTorch asks for its CUDA half once and remembers the answer. Never closed.
// A driver without a module, or a module that cannot be opened, is a warning that says what to do. `allocator`: settings as
// PYTORCH_CUDA_ALLOC_CONF has them, which LibTorch reads when it is opened; empty: those of the environment.
const CudaModule* open_cuda_module(const std::string& allocator, Logger& logger);

}  // namespace trainer::device
