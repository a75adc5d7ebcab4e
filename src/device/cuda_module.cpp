#include "device/cuda_module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "trainer/error.h"

namespace trainer::device {
CudaAccess open_cuda_module() {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) return {};
  // The module is found by the run path of the library or program that contains this code. RTLD_GLOBAL is needed because LibTorch's CUDA
  // libraries use each other's symbols.
  void* library = dlopen("libtrainer_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    return {
        .refusal = fmt::format(
            "{}; for GPUs use the -cuda bundle or the wheel with a torch package for CUDA, or run scripts/setup.sh --cuda and build again",
            dlerror())};
  const auto entry = reinterpret_cast<CudaModuleEntry>(dlsym(library, kCudaModuleEntry));
  if (entry == nullptr)
    return {.refusal = "libtrainer_cuda.so and this program have different versions; unpack the bundle again, or build both again"};
  const CudaModule* module = entry();
  if (const auto refusal = module->refusal(); !refusal.empty()) {
    return {.refusal = refusal + "; nvidia-smi shows the driver's version and whether it works"};
  }
  return {.module = module->device_count() > 0 ? module : nullptr};
}

}  // namespace trainer::device
