#pragma once
// Where and how tensors are stored: device, memory format, dtypes. Chosen once, printed, then passed down.

#include <torch/types.h>

#include <optional>
#include <string>

#include "base/log.h"
#include "device/cuda_module.h"
#include "trainer/options.h"

namespace trainer::device {

struct Placement {
  torch::Device device{torch::kCPU};
  torch::ScalarType dtype = torch::kFloat32;                            // of parameters
  torch::ScalarType input_dtype = torch::kFloat32;                      // of images: autocast's type if autocast is on
  torch::MemoryFormat memory_format = torch::MemoryFormat::Contiguous;  // of images and 4-D parameters
  bool network_chooses_format = false;                                  // whether the options leave memory_format to the network
  std::optional<torch::ScalarType> autocast_dtype;                      // empty: no autocast
  ConvolutionChoice convolution = ConvolutionChoice::kDirect;           // never kAuto
  bool fuse = false;                                                    // PlacementOptions::fuse
  int num_threads = 1;
  bool pin_memory = false;
  const CudaModule* cuda = nullptr;  // when `device` is a GPU
  CudaGraphChoice cuda_graph = CudaGraphChoice::kOff;
};

// The part of its host that this process may use.
struct HostShare {
  int num_threads = 1;  // that compute, if the options do not say how many
  int local_rank = 0;
};

// Chooses what the options leave open. The GPU is the one of the local rank, or the only visible one.
// Throws UsageError when the options require something that the machine does not have.
Placement choose_placement(const PlacementOptions& options, const HostShare& share, const CudaAccess& cuda);

// One line for the log: "cpu, 2 threads, bfloat16 autocast, channels_last".
std::string to_string(const Placement& placement);

// Makes the C library keep freed memory for the next step: otherwise page faults cost up to a third of a small network's step. Must be
// called before the first tensor is created.
void configure_cpu_allocator();

// Configures LibTorch accordingly: threads, determinism, cuDNN. Call once per process.
void apply_placement(const Placement& placement, const PlacementOptions& options);

// Bytes: the device allocator's peak on a GPU, the process's resident set on a CPU.
uint64_t memory_in_use(const Placement& placement);

// True when the processor computes bfloat16 natively: avx512_bf16, which every processor with AMX has too.
bool cpu_has_fast_bfloat16();
// True when it has AMX, an order of magnitude faster in bfloat16 than in float32.
bool cpu_has_amx();

}  // namespace trainer::device
