#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>

#include "nn/channels.h"
#include "nn/convolution/winograd_kernels.h"

namespace trainer::nn {

// A convolution on the CPU, without gradients, whose weight never changes, with its activation and the addition of a residual. The weight
// is kept in the order in which it is read. Convolutions of one group and depthwise ones are computed by kernels of this module, others
// by one operator of oneDNN, which otherwise would order the weight in each call.
class FixedConvolution {
 public:
  // The arguments of at::conv2d. `tile`: for Winograd's algorithm; empty: another algorithm. oneDNN's order is chosen for inputs of the
  // size of `x`; others are computed too, but their call may have to make another order.
  FixedConvolution(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t stride, int64_t padding,
                   int64_t groups, std::optional<convolution::Tile> tile);

  // Whether the constructor and run() can compute with `x` if `tile` is empty; otherwise they can if fastest_tile() returned the tile.
  static bool supports(const torch::Tensor& x);
  const std::optional<convolution::Tile>& tile() const { return tile_; }
  // activation(convolution(x) + residual), with nothing added if `residual` is undefined; with a tile only without an activation or with a
  // ReLU.
  torch::Tensor run(const torch::Tensor& x, FusedActivation activation, const torch::Tensor& residual) const;

 private:
  enum class Kind { kWinograd, kDirect, kDepthwise, kOneDnn };
  torch::Tensor run_direct(const torch::Tensor& x, FusedActivation activation, const torch::Tensor& residual) const;
  torch::Tensor run_depthwise(const torch::Tensor& x, FusedActivation activation, const torch::Tensor& residual) const;
  torch::Tensor run_onednn(const torch::Tensor& x, FusedActivation activation, const torch::Tensor& residual) const;

  Kind kind_ = Kind::kOneDnn;
  int64_t out_channels_, kernel_;
  std::optional<convolution::Tile> tile_;
  torch::Tensor weight_;        // in the kind's order
  torch::Tensor bias_;          // [out]
  torch::Tensor ones_, zeros_;  // [out]: a scale and a shift that change nothing
  std::array<int64_t, 2> stride_, padding_;
  int64_t groups_;
};

}  // namespace trainer::nn
