#pragma once
// What `trainer doctor` asks the CUDA module; training does not use it.

#include <cstdint>
#include <string>
#include <vector>

namespace trainer::device {

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
