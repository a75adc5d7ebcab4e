#pragma once
// Batch normalisation with an activation or with a residual addition and a ReLU as one differentiable operator, which reads and writes
// memory less often than separate operators.

#include <torch/types.h>

#include <memory>
#include <optional>

#include "nn/channels.h"
#include "nn/convolution/depthwise_kernels.h"
#include "trainer/distributed.h"
#include "trainer/nn.h"

namespace trainer::nn::fused_norm {

class GpuKernels;

// The parameters, running statistics and options of a layer for one forward pass.
struct Layer {
  torch::Tensor weight = {};
  torch::Tensor bias = {};
  torch::Tensor running_mean = {};
  torch::Tensor running_var = {};
  double batch_weight = 0;  // weight of the batch in the running statistics, which training updates
  double eps = 0;
  bool is_training = false;
  // In training, the statistics are those of the joined batch of this group, or those of this rank's batch if the group is null.
  std::shared_ptr<const distributed::ProcessGroup> group = {};
  std::shared_ptr<const GpuKernels> gpu = {};  // null: the kernels for CPUs are used
};

// Whether normalise() supports these arguments: dense tensors in channels_last; a number of channels that is a multiple of kFewestChannels,
// on a GPU of kChannels. On a CPU float32, float64 or, with parameters in float32, bfloat16; on a GPU float32 parameters and float32,
// bfloat16 or float16. `residual` may be undefined.
bool supports(const torch::Tensor& x, const torch::Tensor& residual, const Layer& layer);

// Batch normalisation as x * scale + shift, [C] each.
struct ScaleAndShift {
  torch::Tensor scale, shift;
};

// Convolution and normalisation in evaluation as a single convolution.
struct Folded {
  torch::Tensor weight, bias;
};
// Differentiable in `weight` [out, ...], `bias` [out], which may be undefined, and the layer's parameters.
Folded fold(const torch::Tensor& weight, const torch::Tensor& bias, const Layer& layer);

// The activation that normalise() can compute after the normalisation; empty: none can replace it.
std::optional<FusedActivation> fused_activation(Activation activation);

// Computes the batch normalisation of x [N, C, H, W], plus `residual` if it is defined, then the activation. Like at::batch_norm, but
// sums of parts of the rows are added in float64. In training with a group: collective, with one all_gather in forward and one sum in
// backward; throws UsageError if a channel has fewer than two values in the joined batch.
torch::Tensor normalise(const torch::Tensor& x, const torch::Tensor& residual, const Layer& layer, FusedActivation activation);

// A depthwise convolution between two normalisations with activations, all in training on the CPU.
struct DepthwiseBlock {
  Layer first;
  FusedActivation first_activation = FusedActivation::kNone;
  torch::Tensor weight;  // [C, 1, kernel, kernel], of the type of x or, if x has bfloat16, of float32
  int64_t stride = 1;
  convolution::Padding padding = 0;
  Layer second;
  FusedActivation second_activation = FusedActivation::kNone;
};

// Whether normalise_depthwise() supports these arguments: those of normalise() and convolution::supports_depthwise(), and more than one
// value per channel in x and after the convolution.
bool supports(const torch::Tensor& x, const DepthwiseBlock& block);

// Both normalisations as normalise() computes them, and the convolution between them, as one operator: the values between the
// convolution and the normalisations stay in the cache and are computed again for the gradients. The sums of the statistics and of the
// weight's gradient depend on the number of threads, but not on their timing. Collective like two calls of normalise().
torch::Tensor normalise_depthwise(const torch::Tensor& x, const DepthwiseBlock& block);

}  // namespace trainer::nn::fused_norm
