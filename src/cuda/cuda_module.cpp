// The CUDA module: the only code that includes CUDA headers, in a shared library that device/cuda_module.cpp opens.

#include "device/cuda_module.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include "cuda/nccl.h"

namespace {

int device_count() { return c10::cuda::device_count(); }

int compute_capability_major(int device) { return at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device))->major; }

uint64_t peak_memory(int device) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<uint64_t>(stats.allocated_bytes[kAll].peak);
}

std::string pci_bus_id(int device) {
  const auto* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
  return fmt::format("{:04x}:{:02x}:{:02x}.0", properties->pciDomainID, properties->pciBusID, properties->pciDeviceID);
}

void set_device(int device) { c10::cuda::set_device(static_cast<c10::DeviceIndex>(device)); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const trainer::device::CudaModule* trainer_cuda_module() {
  static constexpr trainer::device::CudaModule kModule{&device_count, &compute_capability_major,        &peak_memory, &pci_bus_id,
                                                       &set_device,   &trainer::cuda::make_nccl_backend};
  return &kModule;
}
