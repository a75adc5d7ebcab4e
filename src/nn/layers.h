#pragma once
// Layers with learned weights. The constructors of torch::nn::Conv2d and Linear draw from the process-wide generator; these leave
// their parameters uninitialised, and the network must initialise them (nn/init.h). Parameter names are PyTorch's.

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "nn/batch_norm.h"
#include "nn/convolution/winograd.h"

namespace trainer::nn {

struct Conv2dOptions {
  int64_t stride = 1;
  int64_t padding = 0;
  bool bias = false;
};

// torch.nn.Conv2d with a square kernel and zero padding.
class Conv2d : public torch::nn::Module {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, Conv2dOptions options = {});
  torch::Tensor forward(const torch::Tensor& input);  // [N, C, H, W]
  // Uses the kernels of this program from now on where they are faster: Winograd's algorithm (convolution::fastest_tile), and the gradient
  // of the weights of a strided 3×3 convolution.
  void use_winograd(convolution::Tile largest_tile) { largest_tile_ = largest_tile; }

  // The tile of Winograd's algorithm for this input, which under autocast has its type already; empty: LibTorch's convolution.
  std::optional<convolution::Tile> winograd_tile(const torch::Tensor& x) const;

  torch::Tensor weight;
  torch::Tensor bias;  // undefined without bias

 private:
  std::optional<convolution::Tile> largest_tile_;
  int64_t stride_;
  int64_t padding_;
};

// The two convolutions of residual networks, without bias; the 3×3 one pads by 1.
std::shared_ptr<Conv2d> conv3x3(int64_t in_channels, int64_t out_channels, int64_t stride = 1);
std::shared_ptr<Conv2d> conv1x1(int64_t in_channels, int64_t out_channels, int64_t stride = 1);

// relu(norm(convolution(x)) + residual), with nothing added if `residual` is undefined. In evaluation without gradients, if both layers use
// kernels of this program, it is one convolution with other weights.
torch::Tensor convolve_normalise_relu(Conv2d& convolution, BatchNorm2d& norm, const torch::Tensor& x, const torch::Tensor& residual = {});

// Calls Conv2d::use_winograd of every convolution below `network`.
void use_winograd(const torch::nn::Module& network, convolution::Tile largest_tile);

// torch.nn.Linear.
class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool has_bias = true);
  torch::Tensor forward(const torch::Tensor& x);  // [N, in_features]

  torch::Tensor weight;
  torch::Tensor bias;  // undefined without bias
};

}  // namespace trainer::nn
