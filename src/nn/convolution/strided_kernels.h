#pragma once
// The weight gradient of 3×3 convolutions with padding 1 and any stride, by the direct algorithm with sums in registers. Tensors are dense
// and channels_last, as in winograd_kernels.h. This file does not include LibTorch, so that only these loops are compiled for each
// instruction set.

#include <cstdint>

#include "nn/convolution/winograd_kernels.h"

namespace trainer::nn::convolution {

// The number of parts of the gradient; each part belongs to one of the nine positions of a kernel and some output channels.
int64_t num_gradient_parts(const Shape& shape);

// Adds the parts [begin, end) to the gradient [out][3][3][in], from the input [N][H][W][in] and the gradient of the output.
template <class T>
void add_strided_weight_gradient(const Shape& shape, const T* input, const T* output_gradient, T* gradient, int64_t begin, int64_t end);

}  // namespace trainer::nn::convolution
