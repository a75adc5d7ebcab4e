#pragma once
// Where and how tensors are stored: device, memory format, dtypes. Chosen and printed once, then passed to all parts of the program.

#include <torch/types.h>

#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "device/cuda_module.h"
#include "trainer/options.h"

namespace trainer::device {

struct Placement {
  torch::Device device{torch::kCPU};
  torch::ScalarType dtype = torch::kFloat32;                            // of parameters
  torch::ScalarType input_dtype = torch::kFloat32;                      // of images; bfloat16 if that is autocast's type, else `dtype`
  torch::MemoryFormat memory_format = torch::MemoryFormat::Contiguous;  // of images and 4-D parameters
  bool network_chooses_format = false;                                  // whether the options leave memory_format to the network
  std::optional<torch::ScalarType> autocast_dtype;                      // empty if autocast is off
  ConvolutionChoice convolution = ConvolutionChoice::kDirect;           // never kAuto
  bool fuse = false;                                                    // PlacementOptions::fuse, decided for `device`
  int num_threads = 1;
  bool pin_memory = false;
  const CudaModule* cuda = nullptr;  // set if `device` is a GPU
  CudaGraphChoice cuda_graph = CudaGraphChoice::kOff;
};

// The part of the host that this process may use.
struct HostShare {
  int num_threads = 1;  // number of compute threads, unless the options set it
  int local_rank = 0;
};

// Chooses all values of the placement that the options do not set. The GPU is the one with the number of the local rank, or the only
// visible one. Throws UsageError if the options require something that the machine does not have.
Placement choose_placement(const PlacementOptions& options, const HostShare& share, const CudaAccess& cuda);

// One line for the log: "cpu, 2 threads, float32 with bfloat16 autocast, channels_last".
std::string to_string(const Placement& placement);

// Makes the C library keep freed memory for the next step, because page faults would take up to a third of the time of a small network's
// step. Must be called before the first tensor is created.
void configure_cpu_allocator();

// Sets LibTorch's options for threads, determinism, cuDNN and TF32.
void apply_placement(const Placement& placement, const PlacementOptions& options);

// Restores what apply_placement() changes to its state at the construction.
class SavedSettings {
 public:
  explicit SavedSettings(const PlacementOptions& options);
  ~SavedSettings();
  SavedSettings(const SavedSettings&) = delete;
  SavedSettings& operator=(const SavedSettings&) = delete;

 private:
  int num_threads_;
  bool is_deterministic_ = false;
  bool only_warns_ = false;
  bool fills_memory_ = false;
  bool is_cudnn_deterministic_ = false;
  bool searches_ = false;
  std::optional<std::pair<bool, bool>> tf32_;  // of cuBLAS and cuDNN, if apply_placement() sets them
};

// In bytes: the device allocator's peak on a GPU, the process's resident set on a CPU.
uint64_t memory_in_use(const Placement& placement);

// Whether the processor supports bfloat16 natively (avx512_bf16), as every processor with AMX does.
bool cpu_has_fast_bfloat16();
// Whether the processor has AMX, which makes bfloat16 an order of magnitude faster than float32.
bool cpu_has_amx();

}  // namespace trainer::device
