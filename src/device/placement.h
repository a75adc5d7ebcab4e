#pragma once
// Where tensors live and how: device, memory format, dtypes. Chosen once, printed, then handed down.

#include <torch/types.h>

#include <optional>
#include <string>

#include "base/log.h"
#include "config/sections/runtime.h"
#include "device/cuda_module.h"

namespace trainer::device {

struct Placement {
  torch::Device device{torch::kCPU};
  torch::ScalarType dtype = torch::kFloat32;                            // of parameters
  torch::ScalarType input_dtype = torch::kFloat32;                      // of images: autocast's type where autocast is on
  torch::MemoryFormat memory_format = torch::MemoryFormat::Contiguous;  // of images and 4-D parameters
  std::optional<torch::ScalarType> autocast_dtype;                      // empty: no autocast
  int num_threads = 1;
  bool pin_memory = false;
  const CudaModule* cuda = nullptr;  // when `device` is a GPU
};

// What this process may have of its host.
struct HostShare {
  int num_cpus = 1;  // cores, those of the other ranks on this host taken off
  int local_rank = 0;
};

// Resolves every `auto`. `cuda`: what open_cuda_module gave. The GPU is the one of the local rank, or the only one that is visible.
// Throws UsageError when the configuration asks for what the machine has not.
Placement choose_placement(const config::RuntimeSection& runtime, const config::AmpSection& amp, const config::Auto<bool>& pin_memory,
                           const HostShare& share, const CudaModule* cuda);

// One line for people: "cpu, 2 threads, bfloat16 autocast, channels_last".
std::string to_string(const Placement& placement);

// Lets the C library keep freed memory for the next step and ask for huge pages, as a training loop wants it: page faults cost up to
// a third of a small network's step otherwise. To be called before the first tensor is made.
void configure_cpu_allocator();

// Sets LibTorch up accordingly: threads, determinism, cuDNN. Once for a process.
void apply_placement(const Placement& placement, const config::RuntimeSection& runtime);

// Bytes: the device allocator's peak on a GPU, the process's resident set on a CPU.
uint64_t memory_in_use(const Placement& placement);

// True when the processor computes bfloat16 natively: avx512_bf16, which every processor with AMX has too.
bool cpu_has_fast_bfloat16();

}  // namespace trainer::device
