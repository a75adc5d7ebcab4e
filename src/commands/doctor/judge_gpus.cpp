#include "commands/doctor/judge_gpus.h"

#include <fmt/format.h>

#include "base/text.h"

namespace trainer::doctor {
namespace {

// "12.4" of 12040.
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

Finding judge_driver(const Gpus& gpus) {
  if (!gpus.refusal.empty()) {
    return failed("there is an NVIDIA driver that cannot be used: " + gpus.refusal,
                  "update the driver, or install the build for its version of CUDA; runtime.device: cpu trains without it");
  }
  if (!gpus.has_driver) return ok("no NVIDIA driver: training uses the CPU");
  if (gpus.count() == 0) {
    return warning("there is an NVIDIA driver, but no GPU is visible: training uses the CPU",
                   "unset CUDA_VISIBLE_DEVICES, or start the container with --gpus all");
  }
  return ok(fmt::format("the driver supports CUDA {}; LibTorch uses CUDA {} and NCCL {}; {}", version_text(gpus.report.driver_version),
                        version_text(gpus.report.runtime_version), gpus.report.nccl_version, counted(gpus.count(), "GPU")));
}

std::vector<Finding> judge_gpus(const Gpus& gpus) {
  std::vector<Finding> findings;
  for (const auto& gpu : gpus.report.gpus) {
    auto text = fmt::format("cuda:{} {} ({}), compute capability {}.{}", findings.size(), gpu.name, gpu.pci_bus_id, gpu.capability_major,
                            gpu.capability_minor);
    if (!gpu.refusal.empty()) {
      findings.push_back(failed(fmt::format("{}: {}", text, gpu.refusal),
                                "use a build whose LibTorch supports this GPU, or hide it with CUDA_VISIBLE_DEVICES"));
      continue;
    }
    text += fmt::format(", {} of {} free", format_bytes(gpu.free_memory), format_bytes(gpu.total_memory));
    if (gpu.free_memory < gpu.total_memory / 2) {
      findings.push_back(
          warning(std::move(text), "`nvidia-smi` shows which programs use its memory; end them, or use another GPU (--gpus)"));
    } else {
      findings.push_back(ok(std::move(text)));
    }
  }
  return findings;
}

std::vector<Finding> judge_links(const Gpus& gpus) {
  if (gpus.count() < 2) return {};
  std::vector<std::string> pairs;
  for (int device = 0; device < gpus.count(); ++device) {
    for (const int other : gpus.report.gpus[static_cast<size_t>(device)].unreachable) {
      if (device < other) pairs.push_back(fmt::format("{}-{}", device, other));
    }
  }
  if (pairs.empty()) return {ok("each GPU reads the memory of each other one directly")};
  return {warning(fmt::format("no direct access between GPUs {}: NCCL copies through the memory of the host", join(pairs, ", ")),
                  "see `nvidia-smi topo -m`; in virtual machines and with IOMMU the direct path may be switched off")};
}

}  // namespace trainer::doctor
