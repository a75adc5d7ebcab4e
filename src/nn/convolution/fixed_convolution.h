#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>

#include "trainer/nn.h"

namespace trainer::nn::convolution {

// A convolution of float32 on the CPU, without gradients, whose weight never changes. With its activation and the addition of a residual it
// is one operator of oneDNN. The weight is kept in the order in which oneDNN reads it, which otherwise is made in each call.
class FixedConvolution {
 public:
  // The arguments of at::conv2d. The order is chosen for inputs of the size of `x`; others are computed too, but their call may have to
  // make another order.
  FixedConvolution(const torch::Tensor& x, const torch::Tensor& weight, torch::Tensor bias, int64_t stride, int64_t padding,
                   int64_t groups);

  // Whether the constructor and run() can compute with `x`.
  static bool supports(const torch::Tensor& x);
  // activate(convolution(x) + residual, activation), with nothing added if `residual` is undefined.
  torch::Tensor run(const torch::Tensor& x, Activation activation, const torch::Tensor& residual) const;

 private:
  torch::Tensor weight_;  // in oneDNN's layout
  torch::Tensor bias_;
  std::array<int64_t, 2> stride_, padding_;
  int64_t groups_;
};

}  // namespace trainer::nn::convolution
