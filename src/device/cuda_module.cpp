#include "device/cuda_module.h"

#include <dlfcn.h>

#include <cstdlib>

namespace trainer::device {

const CudaModule* open_cuda_module(const std::string& allocator, Logger& logger) {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) return nullptr;
  if (!allocator.empty()) {
    // The second is the name in newer releases, which read both.
    for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) setenv(name, allocator.c_str(), /*overwrite=*/1);
  }
  // Found beside the executable, by its run path. RTLD_GLOBAL: LibTorch's CUDA libraries look for each other's symbols.
  void* library = dlopen("libtrainer_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    logger.warn("there is an NVIDIA driver, but training runs on the CPU: {} (scripts/setup.sh --cuda, then build again)", dlerror());
    return nullptr;
  }
  const auto entry = reinterpret_cast<CudaModuleEntry>(dlsym(library, kCudaModuleEntry));
  if (entry == nullptr) {
    logger.warn("libtrainer_cuda.so is of another version, so training runs on the CPU; build again");
    return nullptr;
  }
  const CudaModule* module = entry();
  return module->device_count() > 0 ? module : nullptr;
}

}  // namespace trainer::device
