#include "nn/layers.h"

#include "nn/layer_observer.h"

namespace trainer::nn {

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, Conv2dOptions options)
    : stride_(options.stride), padding_(options.padding) {
  weight = register_parameter("weight", torch::empty({out_channels, in_channels, kernel_size, kernel_size}));
  if (options.bias) bias = register_parameter("bias", torch::empty({out_channels}));
}

torch::Tensor Conv2d::forward(const torch::Tensor& x) {
  if (largest_tile_ && stride_ == 1 && padding_ == 1) {
    if (const auto tile = winograd::fastest_tile(x, weight, *largest_tile_)) {
      return observed(*this, winograd::convolve(x, weight, bias, *tile));
    }
  }
  return observed(*this, at::conv2d(x, weight, bias, stride_, padding_));
}

std::shared_ptr<Conv2d> conv3x3(int64_t in_channels, int64_t out_channels, int64_t stride) {
  return std::make_shared<Conv2d>(in_channels, out_channels, 3, Conv2dOptions{.stride = stride, .padding = 1});
}

std::shared_ptr<Conv2d> conv1x1(int64_t in_channels, int64_t out_channels, int64_t stride) {
  return std::make_shared<Conv2d>(in_channels, out_channels, 1, Conv2dOptions{.stride = stride});
}

void use_winograd(const torch::nn::Module& network, winograd::Tile largest_tile) {
  for (const auto& module : network.modules(/*include_self=*/false)) {
    if (auto* convolution = module->as<Conv2d>()) convolution->use_winograd(largest_tile);
  }
}

Linear::Linear(int64_t in_features, int64_t out_features) {
  weight = register_parameter("weight", torch::empty({out_features, in_features}));
  bias = register_parameter("bias", torch::empty({out_features}));
}

torch::Tensor Linear::forward(const torch::Tensor& x) { return observed(*this, at::linear(x, weight, bias)); }

}  // namespace trainer::nn
