#pragma once
// The interface of networks, and the arguments of their constructors.

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "nn/batch_norm.h"

namespace trainer::models {

class Model : public torch::nn::Module {
 public:
  // One batch, first dimension N; images are [N, C, H, W]. Returns [N, num_outputs].
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  // Shape of one input sample that the network was built for, such as {3, 32, 32}; -1: any size.
  virtual std::vector<int64_t> input_shape() const = 0;
  virtual int64_t num_outputs() const = 0;
  // Whether NHWC memory order makes the network faster; used by runtime.channels_last: auto.
  virtual bool prefers_channels_last() const { return true; }
};

// Networks are built on the CPU in float32 and moved by the caller.
struct BuildContext {
  at::Generator init_generator;     // CPU; every initial value comes from it
  at::Generator dropout_generator;  // on the training device; reseeded by the train step before each step
  nn::NormFactory norm;
};

}  // namespace trainer::models
