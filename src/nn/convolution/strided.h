#pragma once
// Strided 3×3 convolutions on the CPU: LibTorch's, with a faster gradient of the weights.

#include <torch/types.h>

namespace trainer::nn::convolution {

// Whether convolve_strided() takes these: float32 or float64 on the CPU, a kernel of 3×3, a number of input channels that is a multiple of
// kChannels.
bool takes_strided(const torch::Tensor& x, const torch::Tensor& weight);

// at::conv2d(x, weight, bias, stride, /*padding=*/1). `x`: [N, in, H, W]; `weight`: [out, in, 3, 3]; `bias`: [out], or undefined. The bits
// of the gradient of the weights depend neither on the number of threads nor on their timing.
torch::Tensor convolve_strided(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t stride);

}  // namespace trainer::nn::convolution
