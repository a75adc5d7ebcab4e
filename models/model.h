#pragma once
// The base class of networks, and the arguments of their constructors.

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "nn/batch_norm.h"

namespace trainer::models {

class Model : public torch::nn::Module {
 public:
  // One batch, first dimension N; images are [N, C, H, W]. Returns [N, num_outputs].
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  // The shape of one input sample for which the network was built, such as {3, 32, 32}; -1: any size.
  virtual std::vector<int64_t> input_shape() const = 0;
  virtual int64_t num_outputs() const = 0;
  // Whether the network is faster with NHWC memory order; runtime.channels_last: auto uses this value.
  virtual bool prefers_channels_last() const { return true; }
};

// Networks are built on the CPU in float32 and moved by the caller.
struct BuildContext {
  at::Generator init_generator;     // CPU; the source of every initial value
  at::Generator dropout_generator;  // on the training device; reseeded by the train step before each step
  nn::NormFactory norm;
};

}  // namespace trainer::models
