#pragma once
// CPU kernels of batch normalisation with statistics that the caller provides.
//
// A tensor is [N, C, …], contiguous or channels_last, of float64, float32, bfloat16 or float16; N may be 0. All tensors of a call have the
// same shape, type and layout. Per-channel values are float64 [C]. Sums are computed in float64; elements are computed in float64 for
// float64 tensors and in float32 for the other types. Results do not depend on the number of threads. Not differentiable.

#include <ATen/core/Tensor.h>

namespace trainer::nn {

// Returns [2C + 1]: the mean of each channel, its sum of squared deviations from that mean, and the number of values per channel.
at::Tensor channel_moments(const at::Tensor& x);

// Combines the moments of P parts [P, 2C + 1] into the moments [2C + 1] of all values, by the parallel formula of Chan, Golub and LeVeque
// in the order of the parts. A part may be empty. The same parts give the same bits.
at::Tensor merge_channel_moments(const at::Tensor& parts);

// Returns [2C]: the sum of dy of each channel, then the sum of dy · (x − mean) of each channel.
at::Tensor channel_gradient_sums(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean);

// (x − mean) · scale + shift, in the type and layout of x.
at::Tensor scale_channels(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale, const at::Tensor& shift);

// dy · dy_scale + (x − mean) · x_scale + shift, in the type and layout of x.
at::Tensor combine_channels(const at::Tensor& dy, const at::Tensor& dy_scale, const at::Tensor& x, const at::Tensor& mean,
                            const at::Tensor& x_scale, const at::Tensor& shift);

}  // namespace trainer::nn
