#pragma once
// Depthwise convolutions (each channel has a kernel of its own) and their gradients by the direct algorithm, for one image. Tensors are
// dense and channels_last: [height][width][channels], with a number of channels that is a multiple of kChannels. This file does not include
// LibTorch, so that only these loops are compiled for each instruction set.
//
// S is the type of the tensors: float, double or BFloat16. Weights have the type Computed<S>.

#include <cstdint>

#include "nn/channels.h"

namespace trainer::nn::convolution {

struct DepthwiseShape {
  int64_t height, width, channels;
  int64_t kernel;   // height and width: 3, 5 or 7
  int64_t stride;   // 1 or 2
  int64_t padding;  // of the rows; less than `kernel`
  int64_t column_padding = padding;

  int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * column_padding - kernel) / stride + 1; }
};

template <class S>
struct DepthwiseKernels {
  using T = Computed<S>;

  // Computes the rows [begin, end) of the output. `weight`: [kernel][kernel][channels].
  void (*output)(const DepthwiseShape& shape, const S* input, const T* weight, S* output, int64_t begin, int64_t end);
  // Computes the rows [begin, end) of the input's gradient. `weight`: [kernel][kernel][channels], with stride 1 turned by 180 degrees.
  void (*input_gradient)(const DepthwiseShape& shape, const S* output_gradient, const T* weight, S* gradient, int64_t begin, int64_t end);
  // Adds the products of the output's rows [begin, end) to `gradient`, [kernel][kernel][channels]. Sums of a row are added in Computed<S>,
  // in `workspace`, which has the size of `gradient`.
  void (*weight_gradient)(const DepthwiseShape& shape, const S* input, const S* output_gradient, T* workspace, double* gradient,
                          int64_t begin, int64_t end);
};

// For the instruction set of this processor.
template <class S>
DepthwiseKernels<S> depthwise_kernels();

}  // namespace trainer::nn::convolution
