#pragma once
// The loops of batch normalisation fused with an activation or a residual addition and a ReLU, over tensors that are dense and
// channels_last: rows of `num_channels` values, a multiple of kFewestChannels. Each function computes some rows on the calling thread;
// fused_norm.cpp distributes the rows. This file does not include LibTorch, so that only these loops are compiled for each instruction set.
//
// S is the type of the tensors: float, double or BFloat16. Values per channel have the type Computed<S>.

#include <cstdint>

#include "nn/channels.h"

namespace trainer::nn::fused_norm {

// The operation for each channel c: y = activation(x * scale[c] + shift[c]), or y = max(x * scale[c] + shift[c] + residual, 0).
template <class T>
struct Operation {
  const T* scale;
  const T* shift;
  FusedActivation activation = FusedActivation::kNone;
};

template <class S>
struct Kernels {
  using T = Computed<S>;

  // Adds the rows to the mean of each channel, and to the sum of squared differences from it, of the `rows_before` rows that these already
  // include; without any, both must be 0. Adds blocks of rows in Computed<S>, and their sums in float64.
  void (*moments)(const S* x, int64_t num_rows, int64_t num_channels, int64_t rows_before, double* mean, double* squares);
  // `residual` may be null.
  void (*normalise)(const Operation<T>& operation, const S* x, const S* residual, S* y, int64_t num_rows, int64_t num_channels);
  // Adds for each channel dy to `sum_dy` and dy * (x - mean) to `sum_dy_x`, where dy is first multiplied by the activation's derivative.
  // That of a ReLU is found from its output `y`; with a null `y`, which is only possible without a residual, any derivative is computed
  // from x. If `masked` is not null, the multiplied dy is written to it; it may be `dy`.
  void (*gradient_sums)(const Operation<T>& operation, const S* dy, const S* x, const S* y, const T* mean, S* masked, int64_t num_rows,
                        int64_t num_channels, double* sum_dy, double* sum_dy_x);
  // Computes dx = dy * dy_factor + x * x_factor + constant; the factors and the constant are one value per channel. dy is first
  // multiplied by the derivative of an activation without a residual. If dy is `masked` of gradient_sums(), there must be no activation.
  void (*input_gradient)(const Operation<T>& operation, const S* dy, const S* x, const T* dy_factor, const T* x_factor, const T* constant,
                         S* dx, int64_t num_rows, int64_t num_channels);
};

// For the instruction set of this processor.
template <class S>
Kernels<S> kernels();

}  // namespace trainer::nn::fused_norm
