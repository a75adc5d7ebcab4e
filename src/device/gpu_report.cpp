#include "device/gpu_report.h"

#include <dlfcn.h>

#include "trainer/error.h"

namespace trainer::device {

GpuReport read_gpu_report() {
  void* library = dlopen("libtrainer_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  const auto entry = library == nullptr ? nullptr : reinterpret_cast<GpuReportEntry>(dlsym(library, kGpuReportEntry));
  if (entry == nullptr) throw Error("libtrainer_cuda.so is of another version; build again");
  GpuReport report;
  entry(report);
  return report;
}

}  // namespace trainer::device
