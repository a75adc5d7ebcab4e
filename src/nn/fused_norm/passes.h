#pragma once
// What the forward and backward passes of the fused operators (fused_norm.h) compute: structures for CPUs and GPUs, and the functions for
// CPUs.

#include <torch/types.h>

#include <memory>

#include "nn/batch_norm.h"
#include "nn/fused_norm/fused_norm.h"
#include "nn/fused_norm/kernels.h"
#include "nn/stored_tensor.h"
#include "trainer/distributed.h"
#include "trainer/torch.h"

namespace trainer::nn::fused_norm {

struct Statistics {
  BatchStatistics batch;
  ScaleAndShift affine;
};

// What the backward pass needs from the forward pass.
struct Forward {
  torch::Tensor x;
  torch::Tensor y;  // undefined without a ReLU or without a residual
  Statistics statistics;
  FusedActivation activation = FusedActivation::kNone;
  bool is_training = false;
  std::shared_ptr<const distributed::ProcessGroup> group = {};
};

// The gradients that the backward pass must compute; that of the residual costs nothing.
struct Needed {
  bool x = false, weight = false, bias = false;
};

// Undefined where they are not needed.
struct Gradients {
  torch::Tensor x = {};
  torch::Tensor residual = {};
  torch::Tensor weight = {};
  torch::Tensor bias = {};
};

// The functions below are for CPUs; their tensors are dense and channels_last.

template <class S>
Operation<Computed<S>> operation_of(const ScaleAndShift& affine, FusedActivation activation) {
  return {.scale = values_of<Computed<S>>(affine.scale), .shift = values_of<Computed<S>>(affine.shift), .activation = activation};
}

// Mean and biased variance of each channel of this rank's part, and its number of values per channel, [2C + 1], in float64.
torch::Tensor local_moments(const torch::Tensor& x);
// The statistics of the batch, with which it updates the running statistics. `moments`: local_moments() of `x`. In training with a group:
// collective, with one all_gather.
Statistics joined_statistics(const torch::Tensor& moments, at::IntArrayRef sizes, const Layer& layer);

void normalise_rows(const torch::Tensor& x, const torch::Tensor& residual, const ScaleAndShift& affine, FusedActivation activation,
                    const torch::Tensor& y);

// Computes the sums [2, C] of dy and of dy * (x - mean) over this rank's part, in float64. dy is first multiplied by the activation's
// derivative; if `masked` is defined, the product is written to it.
torch::Tensor gradient_sums(const torch::Tensor& dy, const Forward& forward, const torch::Tensor& masked);

// The gradient of x is dy * scale + x * x_factor + constant, where dy is first multiplied by the activation's derivative.
struct InputFactors {
  torch::Tensor x, constant;  // [C]
};
// `local_sums`: of gradient_sums(). In training with a group: collective, with one sum.
InputFactors input_factors(const Forward& forward, const torch::Tensor& local_sums);
// Writes the gradient of x to `dx`, which may be `dy`.
void input_gradient(const torch::Tensor& dy, const torch::Tensor& x, const ScaleAndShift& affine, FusedActivation activation,
                    const InputFactors& factors, const torch::Tensor& dx);
// Only those of weight and bias.
Gradients parameter_gradients(const Forward& forward, const torch::Tensor& local_sums, const Needed& needed);

}  // namespace trainer::nn::fused_norm
