#pragma once
// The interface to the module cuda/, a separate shared library: without a GPU, neither it nor LibTorch's CUDA libraries are loaded.

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainer::device {

// The module's functions; filled in by cuda/cuda_module.cpp.
struct CudaModule {
  int (*device_count)() = nullptr;
  // Why CUDA cannot be used, such as a driver that is too old, in the CUDA runtime's own words; empty if it can, or if there is no GPU.
  std::string (*refusal)() = nullptr;
  int (*compute_capability_major)(int device) = nullptr;
  // Why LibTorch cannot compute on this device, such as an architecture that it was not built for; empty if it can. Names the device.
  std::string (*device_refusal)(int device) = nullptr;
  // Peak number of bytes that the caching allocator has held for tensors.
  uint64_t (*peak_memory)(int device) = nullptr;
  // "0000:3b:00.0"
  std::string (*pci_bus_id)(int device) = nullptr;
  void (*set_device)(int device) = nullptr;
  // Collective; the backend connects when it is first used.
  c10::intrusive_ptr<c10d::Backend> (*make_nccl_backend)(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::Device device,
                                                         std::chrono::milliseconds timeout) = nullptr;
};

// Name and type of the module's one exported function.
inline constexpr const char* kCudaModuleEntry = "trainer_cuda_module";
using CudaModuleEntry = const CudaModule* (*)();

struct CudaAccess {
  const CudaModule* module = nullptr;  // null: no GPU can be used
  std::string refusal = {};            // why not, and the remedy, if there is an NVIDIA driver
};

// Opens the module if there is an NVIDIA driver, which makes CUDA available to LibTorch. Must be called before any other use of LibTorch,
// which looks for its CUDA libraries once and caches the result. The module is never closed.
CudaAccess open_cuda_module();

}  // namespace trainer::device
