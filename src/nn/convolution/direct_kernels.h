#pragma once
// Convolutions of float as products of matrices, without a copy of the image for each tap. Tensors are channels_last; the number of output
// channels is a multiple of kChannels. This file does not include LibTorch, so that only these loops are compiled for each instruction set.

#include <cstdint>

#include "nn/channels.h"

namespace trainer::nn::convolution {

// Lines of output pixels. The input of a pixel is `num_taps` pieces of `depth` values each, which are one after another in the weight; with
// an image that includes its padding, a piece is a row of the kernel.
struct DirectShape {
  int64_t num_pixels;  // of all lines; only the last line may have fewer than the others
  int64_t pixels_per_line;
  int64_t line_step, pixel_step;  // from the input of a line or pixel to that of the next, in values
  int64_t num_taps, tap_step, depth;
  int64_t out_channels;
};

// The operations after the products: y = sum + bias + residual, bounded to [least, most].
struct Finish {
  const float* bias;      // one value for each channel
  const float* residual;  // pixels like y; null: nothing is added
  float least, most;
};

// The unit in which output channels are divided among calls of `convolve`.
inline constexpr int64_t kDirectChannels = 4 * kChannels;

struct DirectKernels {
  // Writes the weight [num_inputs][out_channels] in the order in which `convolve` reads it.
  void (*pack)(const float* weight, int64_t num_inputs, int64_t out_channels, float* packed);
  // Computes the channels [first_channel, end_channel) of y, whose pixels have `shape.out_channels`. Both are multiples of kDirectChannels,
  // or the end is the number of channels.
  void (*convolve)(const DirectShape& shape, const float* x, const float* packed, int64_t first_channel, int64_t end_channel,
                   const Finish& finish, float* y);
};

// For the instruction set of this processor.
DirectKernels direct_kernels();

}  // namespace trainer::nn::convolution
