#pragma once

#include <torch/torch.h>

namespace trainer::nn {

// Dropout whose mask is drawn from `generator`, on the generator's device. The train step reseeds it before each step.
class Dropout : public torch::nn::Module {
 public:
  Dropout(double p, at::Generator generator);
  // Identity in eval mode and for p = 0; otherwise keeps each value with probability 1 - p and scales it by 1 / (1 - p).
  torch::Tensor forward(const torch::Tensor& x);

 private:
  double p_;
  at::Generator generator_;
};

}  // namespace trainer::nn
