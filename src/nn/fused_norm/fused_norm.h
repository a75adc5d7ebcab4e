#pragma once
// Batch normalisation with a ReLU and a residual addition as one operator with gradients, on the CPU: reads and writes memory less often
// than the operators one after the other.

#include <torch/types.h>

#include <memory>

#include "trainer/distributed.h"

namespace trainer::nn::fused_norm {

// The state of a layer that one forward pass uses.
struct Layer {
  torch::Tensor weight, bias, running_mean, running_var;
  double batch_weight = 0;  // of the batch in the running statistics, which training updates
  double eps = 0;
  bool is_training = false;
  // In training, the statistics are those of the joined batch of this group; null: of this rank's batch.
  std::shared_ptr<const distributed::ProcessGroup> group = {};
};

// Whether normalise() takes these: float32, float64 or, with parameters in float32, bfloat16 on the CPU, dense in channels_last, a number
// of channels that is a multiple of kChannels. `residual` may be undefined.
bool supports(const torch::Tensor& x, const torch::Tensor& residual, const torch::Tensor& weight);

// Batch normalisation as x * scale + shift, [C] each.
struct ScaleAndShift {
  torch::Tensor scale, shift;
};
// In evaluation, without gradients.
ScaleAndShift evaluation_scale_and_shift(const Layer& layer);

// Batch normalisation of x [N, C, H, W], plus `residual` if it is defined, then a ReLU if `relu`. As at::batch_norm, with sums in float64.
// Collective in training with a group: one all_gather, and in backward one sum. Throws UsageError in training when a channel has fewer
// than two values in the joined batch.
torch::Tensor normalise(const torch::Tensor& x, const torch::Tensor& residual, const Layer& layer, bool relu);

}  // namespace trainer::nn::fused_norm
