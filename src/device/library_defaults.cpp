#include "device/library_defaults.h"

#include <cstdlib>
#include <filesystem>

namespace trainer::device {
namespace {

struct Default {
  const char* name;
  const char* value;
};

constexpr Default kDefaults[] = {
    // LibTorch would print a stack trace for a lost connection; this program reports it in one sentence.
    {"TORCH_CPP_LOG_LEVEL", "FATAL"},
    // cuBLAS is deterministic only with a fixed workspace. Before Hopper it has 24 MiB more than LibTorch's default.
    {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"},
    // The communicators of gradients and of batch statistics are used at the same time. Their kernels could wait for each other forever
    // unless every GPU starts them in the order of the calls, which is the same on all ranks. NCCL has this from 2.26 on.
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "1"},
    // The failure detector finds the rank that failed first. Without these, LibTorch's own threads would abort the process, and the
    // launcher would report this rank.
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
    {"TORCH_NCCL_ENABLE_MONITORING", "0"},
    {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},
    {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},
};

// Of Linux, and of Windows's subsystem for it.
bool has_gpu_device() {
  std::error_code unknown;
  return std::filesystem::exists("/dev/nvidiactl", unknown) || std::filesystem::exists("/dev/dxg", unknown);
}

}  // namespace

void set_library_defaults() {
  for (const auto& [name, value] : kDefaults) setenv(name, value, /*overwrite=*/0);
  // The profiler of a LibTorch with CUDA prints an error where there is no GPU. Where there is one, its errors tell what the trace lacks.
  if (!has_gpu_device()) setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
}

}  // namespace trainer::device
