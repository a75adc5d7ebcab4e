#pragma once

#include <torch/types.h>

namespace trainer::nn::convolution {

// Whether convolve_depthwise() supports these arguments: float32, float64 or bfloat16 on the CPU; a kernel of 3×3, 5×5 or 7×7 for each
// channel; a number of channels that is a multiple of kChannels.
bool supports_depthwise(const torch::Tensor& x, const torch::Tensor& weight, int64_t stride, int64_t padding, int64_t groups);

// at::conv2d(x, weight, bias, stride, padding, /*dilation=*/1, /*groups=*/channels), with faster gradients of x and of the weight. `x`:
// [N, channels, H, W] in channels_last; `weight`: [channels, 1, kernel, kernel]; `bias`: [channels], or undefined. Sums of rows of the
// weight's gradient are added in float64; this gradient may depend on the number of threads, but not on their timing.
torch::Tensor convolve_depthwise(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t stride,
                                 int64_t padding);

}  // namespace trainer::nn::convolution
