#pragma once
// The interface to the module cuda/, a separate shared library: without a GPU, neither it nor LibTorch's CUDA libraries are loaded.

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace trainer::device {

// Kernels and copies that were recorded, and can be started again with the same addresses. Its tensors stay allocated as long as it exists.
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  // On the current stream. Random numbers come from the present states of the generators.
  virtual void replay() = 0;
};

// The module's functions; filled in by device/cuda/cuda_module.cpp.
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
  // Records, without computing it, what `work` asks of the current stream, which must not wait for the device. `generators`: those of the
  // device that it draws from, besides the default one. Throws what `work` throws.
  std::unique_ptr<CudaGraph> (*record_graph)(const std::vector<at::Generator>& generators, const std::function<void()>& work) = nullptr;
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

// What `trainer doctor` asks the CUDA module; training does not use it.

struct GpuReport {
  struct Gpu {
    std::string name;
    std::string pci_bus_id;
    int capability_major = 0;
    int capability_minor = 0;
    uint64_t total_memory = 0;  // bytes
    uint64_t free_memory = 0;
    std::string refusal;                // why LibTorch cannot compute on it; empty: it can
    std::vector<int> unreachable = {};  // GPUs of which it cannot read the memory
  };
  int driver_version = 0;   // the CUDA version of the driver: 12040 for 12.4
  int runtime_version = 0;  // the CUDA version of LibTorch
  std::string nccl_version;
  std::vector<Gpu> gpus;
};

// Name and type of the module's function. It uses each GPU.
inline constexpr const char* kGpuReportEntry = "trainer_gpu_report";
using GpuReportEntry = void (*)(GpuReport& report);

// After open_cuda_module() has returned a module.
GpuReport read_gpu_report();

}  // namespace trainer::device
