// The part of the CUDA module that `trainer doctor` calls.

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <torch/csrc/cuda/nccl.h>

#include "device/cuda_module.h"

extern "C" const trainer::device::CudaModule* trainer_cuda_module();

extern "C" __attribute__((visibility("default"))) void trainer_gpu_report(trainer::device::GpuReport& report) {
  const auto& module = *trainer_cuda_module();
  cudaDriverGetVersion(&report.driver_version);
  cudaRuntimeGetVersion(&report.runtime_version);
  const auto nccl = torch::cuda::nccl::version();
  report.nccl_version = fmt::format("{}.{}.{}", nccl >> 32, nccl >> 16 & 0xffff, nccl & 0xffff);
  const int count = module.device_count();
  for (int device = 0; device < count; ++device) {
    auto& gpu = report.gpus.emplace_back();
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) gpu.name = properties.name;
    gpu.capability_major = properties.major;
    gpu.capability_minor = properties.minor;
    gpu.pci_bus_id = module.pci_bus_id(device);
    gpu.refusal = module.device_refusal(device);
    size_t free = 0;
    size_t total = 0;
    if (gpu.refusal.empty() && cudaSetDevice(device) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess) {
      gpu.free_memory = free;
      gpu.total_memory = total;
    }
  }
}
