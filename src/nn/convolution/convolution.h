#pragma once
// Convolutions on the CPU: of 3×3 by Winograd's algorithm for stride 1 and, for larger strides, LibTorch's with a faster weight gradient;
// depthwise ones by LibTorch's with faster gradients.

#include <torch/types.h>

#include <optional>

#include "nn/convolution/depthwise_kernels.h"
#include "nn/convolution/winograd_kernels.h"

namespace trainer::nn::convolution {

// Whether convolve(), with stride 1, or convolve_strided() supports these arguments: float32 or float64 on the CPU or, with stride 1, x in
// bfloat16 and the weight in float32; a 3×3 kernel, and a number of input channels, with stride 1 also of output channels, that is a
// multiple of kChannels.
bool supports(const torch::Tensor& x, const torch::Tensor& weight, int64_t stride = 1);

// at::conv2d(x, weight, bias, stride, /*padding=*/1). `x`: [N, in, H, W]; `weight`: [out, in, 3, 3]; `bias`: [out], or undefined. The
// weight gradient is bitwise independent of the number of threads and their timing.
torch::Tensor convolve_strided(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t stride);

// Whether convolve_depthwise() supports these arguments: float32, float64 or bfloat16 on the CPU; a kernel of 3×3, 5×5 or 7×7 for each
// channel; a number of channels that is a multiple of kFewestChannels.
bool supports_depthwise(const torch::Tensor& x, const torch::Tensor& weight, int64_t stride, const Padding& padding, int64_t groups);

// at::conv2d(x, weight, bias, stride, padding, /*dilation=*/1, /*groups=*/channels), with faster gradients of x and of the weight. `x`:
// [N, channels, H, W] in channels_last; `weight`: [channels, 1, kernel, kernel]; `bias`: [channels], or undefined. Sums of rows of the
// weight's gradient are added in float64; this gradient may depend on the number of threads, but not on their timing.
torch::Tensor convolve_depthwise(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t stride,
                                 int64_t padding);

DepthwiseShape depthwise_shape(const torch::Tensor& x, int64_t kernel, int64_t stride, const Padding& padding);
// The weight of a depthwise convolution in the order of DepthwiseKernels::output, [kernel * kernel, channels].
torch::Tensor depthwise_taps(const torch::Tensor& weight, torch::ScalarType dtype);
// The same for DepthwiseKernels::input_gradient.
torch::Tensor depthwise_gradient_taps(const torch::Tensor& weight, int64_t stride, torch::ScalarType dtype);

// 3×3 convolutions by Winograd's algorithm on the CPU, as a differentiable operator.

// Returns the tile, at most `largest`, with which convolve() is fastest; nullopt if LibTorch's convolution is faster or convolve() does not
// support the arguments. Does not depend on the number of images, so that the result for an image does not depend on its batch.
std::optional<Tile> fastest_tile(const torch::Tensor& x, const torch::Tensor& weight, Tile largest);

// at::conv2d(x, weight, bias, /*stride=*/1, /*padding=*/1). `x`: [N, in, H, W]; `weight`: [out, in, 3, 3]; both in any memory format;
// `bias`: [out], or undefined. The result is channels_last and has the type of x. For bfloat16, the computation is in float32 and the
// weight is not rounded. The output is bitwise independent of the number of threads and their timing; the weight gradient may depend on
// their number, but not on their timing.
torch::Tensor convolve(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, Tile tile);

// The operations after a convolution in evaluation; tensors may be undefined.
struct Addends {
  torch::Tensor bias = {};      // [out]
  torch::Tensor residual = {};  // of the output's size
  bool relu = false;
};

// The weight [out, in, 3, 3] in the form and order of convolve_transformed(), which has 1.8 times as many values with tiles of 2×2, 4 times
// as many with 4×4.
torch::Tensor transformed_weight(const torch::Tensor& weight, Tile tile);
// convolve() plus the addends, then the ReLU if `addends.relu`, as one operator without gradients.
torch::Tensor convolve_transformed(const torch::Tensor& x, const torch::Tensor& transformed_weight, const Addends& addends, Tile tile);

}  // namespace trainer::nn::convolution
