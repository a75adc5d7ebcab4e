#pragma once
// Batch normalisation over the joined batch of all ranks of a process group, like torch.nn.SyncBatchNorm, but also on the CPU. The kernels
// are those of nn/fused_norm or of ATen's batch normalisation on the CPU, and those of Python's SyncBatchNorm on CUDA. Ranks' parts are
// merged in float64 on the CPU and in float32 on CUDA (float64 for a float64 input).

#include <torch/types.h>

#include <memory>

#include "trainer/distributed.h"

namespace torch::nn {
class Module;
}

namespace trainer::nn {

// The state of a layer that one forward pass uses.
struct LayerState {
  std::shared_ptr<const distributed::ProcessGroup> group;
  torch::Tensor running_mean, running_var;
  double batch_weight;
  double eps;
};

// The forward pass in training without nn/fused_norm; see batch_norms(). `layer.group` has several ranks.
torch::Tensor normalise_over_ranks(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, const LayerState& layer);

// Whether `layer` is a batch normalisation over several ranks, including LibTorch's layers that convert_sync_batch_norm() has converted.
bool is_joined(const torch::nn::Module& layer);
// Whether all buffers of a model belong to batch normalisations over the ranks of a group, so that every rank has the same values.
bool has_equal_buffers(const torch::nn::Module& model);

}  // namespace trainer::nn
