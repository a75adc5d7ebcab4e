#pragma once
// The loops of batch normalisation fused with a ReLU and a residual addition, over tensors that are dense and channels_last: rows of
// `num_channels` values, a multiple of kChannels. Each function computes some rows on the calling thread; fused_norm.cpp distributes the
// rows. Without LibTorch, so that the compiler sees only loops.
//
// S: the type of the tensors, float, double or BFloat16. What belongs to a channel has the type that is computed with, Computed<S>.

#include <cstdint>

#include "nn/channels.h"

namespace trainer::nn::fused_norm {

// What is computed for each channel c: y = x * scale[c] + shift[c] (+ residual), then max(y, 0) if `relu`.
template <class T>
struct Operation {
  const T* scale;
  const T* shift;
  bool relu = false;
};

// The mean of each channel, and the sum of squared differences from it. Sums have the precision of float64.
template <class S>
void moments(const S* x, int64_t num_rows, int64_t num_channels, double* mean, double* squares);

// `residual` may be null.
template <class S>
void normalise(const Operation<Computed<S>>& operation, const S* x, const S* residual, S* y, int64_t num_rows, int64_t num_channels);

// For each channel the sum of dy and that of dy * (x - mean), after the ReLU: where that gave 0, dy counts as 0. Where the ReLU gave 0 is
// read from `y`, or computed from x if `y` is null, which is possible without a residual. If `masked` is not null, it gets these dy.
template <class S>
void gradient_sums(const Operation<Computed<S>>& operation, const S* dy, const S* x, const S* y, const Computed<S>* mean, S* masked,
                   int64_t num_rows, int64_t num_channels, double* sum_dy, double* sum_dy_x);

// dx = dy * dy_factor + x * x_factor + constant, with one of each for a channel. dy counts as 0 where a ReLU without a residual gave 0;
// with `masked` of gradient_sums as dy, the operation has none.
template <class S>
void input_gradient(const Operation<Computed<S>>& operation, const S* dy, const S* x, const Computed<S>* dy_factor,
                    const Computed<S>* x_factor, const Computed<S>* constant, S* dx, int64_t num_rows, int64_t num_channels);

}  // namespace trainer::nn::fused_norm
