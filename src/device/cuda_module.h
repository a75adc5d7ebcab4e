#pragma once
// The interface to the module cuda/. The module is a separate shared library, so that LibTorch's CUDA libraries are loaded only where there
// is an NVIDIA driver.

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainer::device {

// The numbers of blocks, and of threads in each block, of a kernel.
struct LaunchShape {
  std::array<unsigned, 2> blocks;
  std::array<unsigned, 2> threads;
};

// Information about the GPUs for `trainer doctor`; training does not use it.

struct GpuReport {
  struct Gpu {
    std::string name;
    std::string pci_bus_id;
    int capability_major = 0;
    int capability_minor = 0;
    uint64_t total_memory = 0;  // bytes
    uint64_t free_memory = 0;
    std::string refusal;  // why LibTorch cannot use it; empty if it can
  };
  int driver_version = 0;   // the CUDA version of the driver: 12040 for 12.4
  int runtime_version = 0;  // the CUDA version of LibTorch
  std::string nccl_version;
  std::vector<Gpu> gpus;
};

// The module's functions; filled in by device/cuda/cuda_module.cpp.
struct CudaModule {
  int (*device_count)() = nullptr;
  // The CUDA runtime's reason why CUDA cannot be used, such as an outdated driver; empty if it can be used, or if there is no GPU.
  std::string (*refusal)() = nullptr;
  int (*compute_capability_major)(int device) = nullptr;
  // Why LibTorch cannot use this device, such as a GPU architecture for which it was not built; empty if it can be used.
  std::string (*device_refusal)(int device) = nullptr;
  // Peak number of bytes that the caching allocator has allocated for tensors.
  uint64_t (*peak_memory)(int device) = nullptr;
  // "0000:3b:00.0"
  std::string (*pci_bus_id)(int device) = nullptr;
  void (*set_device)(int device) = nullptr;
  // Records what `work` submits to the current stream, without executing it; `work` must not synchronize with the device. Returns the
  // function that replays it on the current stream and the same addresses, with random numbers from the current states of the generators.
  // Memory allocated during the recording is kept as long as that function exists. `generators`: the device's generators that `work` uses
  // besides the default one. Throws what `work` throws, and c10::Error if the recording fails; the generators must then be seeded again.
  std::function<void()> (*record_graph)(const std::vector<at::Generator>& generators, const std::function<void()>& work) = nullptr;
  // Compiles CUDA C++ for a device, and returns its extern "C" kernels of these names. Compiles each text once per process and kind of
  // device. Throws c10::Error with the compiler's messages.
  std::vector<const void*> (*compile)(const std::string& source, const std::vector<std::string>& names, int device) = nullptr;
  // Launches a kernel of compile() on the device's current stream. `argument`: the kernel's only parameter.
  void (*launch)(const void* kernel, int device, const LaunchShape& shape, const void* argument) = nullptr;
  // Collective. The backend connects when it is first used.
  c10::intrusive_ptr<c10d::Backend> (*make_nccl_backend)(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::Device device,
                                                         std::chrono::milliseconds timeout) = nullptr;
  // Ends the running collectives of these backends, whose results are then undefined; later ones throw with the reason.
  void (*abort_nccl)(const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends, const std::string& reason) = nullptr;
  // Initialises CUDA on each usable GPU.
  GpuReport (*gpu_report)() = nullptr;
};

// The name and type of the module's main exported function.
inline constexpr const char* kCudaModuleEntry = "trainer_cuda_module";
using CudaModuleEntry = const CudaModule* (*)();

struct CudaAccess {
  const CudaModule* module = nullptr;  // null if no GPU can be used
  std::string refusal = {};            // why no GPU can be used, and how to fix it; empty without an NVIDIA driver or a GPU
};

// If there is an NVIDIA driver, opens the module, and so makes CUDA available to LibTorch. Must be called before any other use of LibTorch,
// which searches for its CUDA libraries once and caches the result. The module is never closed.
CudaAccess open_cuda_module();

}  // namespace trainer::device
