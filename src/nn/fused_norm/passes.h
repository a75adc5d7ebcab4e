#pragma once
// What the forward and backward passes of the fused operator (fused_norm.h) compute, on a CPU (fused_norm.cpp) and on a GPU (gpu.h).

#include <torch/types.h>

#include <memory>

#include "nn/batch_norm.h"
#include "nn/fused_norm/fused_norm.h"
#include "trainer/distributed.h"

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
  bool relu = false;
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

}  // namespace trainer::nn::fused_norm
