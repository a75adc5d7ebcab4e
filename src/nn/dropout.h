#pragma once

#include <torch/torch.h>

namespace trainer::nn {

// Dropout whose mask comes from `generator` (shared with whoever reseeds it each step), on the generator's device.
class Dropout : public torch::nn::Module {
 public:
  Dropout(double p, at::Generator generator);
  // Identity in eval mode and for p = 0; otherwise keeps with probability 1 - p and scales by 1 / (1 - p).
  torch::Tensor forward(const torch::Tensor& x);

 private:
  double p_;
  at::Generator generator_;
};

}  // namespace trainer::nn
