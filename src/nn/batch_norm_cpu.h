#pragma once
// The passes of a batch normalisation over the values of each channel, on the CPU, for statistics that come from elsewhere.
//
// A tensor is [N, C, …], contiguous or channels_last, of float64, float32, bfloat16 or float16; N may be 0. Two tensors of one call
// have one shape, type and layout. What belongs to a channel is float64 [C]: sums are made in float64, values in float64 for float64 and
// in float32 for the other types. Results do not depend on the number of threads. Not differentiable.

#include <ATen/core/Tensor.h>

namespace trainer::nn {

// [2C + 1]: the mean of each channel, its sum of squared deviations from that mean, and the number of values of a channel.
at::Tensor channel_moments(const at::Tensor& x);

// The moments [2C + 1] of all values, from those of their parts [P, 2C + 1], by the parallel formula of Chan, Golub and LeVeque in the
// order of the parts. A part may be empty. The same parts give the same bits.
at::Tensor merge_channel_moments(const at::Tensor& parts);

// [2C]: of each channel the sum of dy, and the sum of dy · (x − mean).
at::Tensor channel_gradient_sums(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean);

// (x − mean) · scale + shift, in the type and layout of x.
at::Tensor scale_channels(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale, const at::Tensor& shift);

// dy · dy_scale + (x − mean) · x_scale + shift, in the type and layout of x.
at::Tensor combine_channels(const at::Tensor& dy, const at::Tensor& dy_scale, const at::Tensor& x, const at::Tensor& mean,
                            const at::Tensor& x_scale, const at::Tensor& shift);

}  // namespace trainer::nn
