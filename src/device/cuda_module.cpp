#include "device/cuda_module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

namespace trainer::device {

CudaAccess open_cuda_module(const std::string& allocator) {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) return {};
  if (!allocator.empty()) {
    // The second is the name in newer releases, which read both.
    for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) setenv(name, allocator.c_str(), /*overwrite=*/1);
  }
  // Found beside the executable, by its run path. RTLD_GLOBAL: LibTorch's CUDA libraries look for each other's symbols.
  void* library = dlopen("libtrainer_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return {.refusal = fmt::format("{} (scripts/setup.sh --cuda, then build again)", dlerror())};
  const auto entry = reinterpret_cast<CudaModuleEntry>(dlsym(library, kCudaModuleEntry));
  if (entry == nullptr) return {.refusal = "libtrainer_cuda.so is of another version; build again"};
  const CudaModule* module = entry();
  if (auto refusal = module->refusal(); !refusal.empty()) return {.refusal = std::move(refusal)};
  return {.module = module->device_count() > 0 ? module : nullptr};
}

}  // namespace trainer::device
