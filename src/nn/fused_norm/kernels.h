#pragma once
// The loops of batch normalisation fused with a ReLU and a residual addition, over tensors that are dense and channels_last: rows of
// `num_channels` values, a multiple of kChannels. Each function computes some rows on the calling thread; fused_norm.cpp distributes the
// rows. This file does not include LibTorch, so that only these loops are compiled for each instruction set.
//
// S is the type of the tensors: float, double or BFloat16. Values per channel have the type Computed<S>.

#include <cstdint>

#include "nn/channels.h"

namespace trainer::nn::fused_norm {

// The operation for each channel c: y = x * scale[c] + shift[c] (+ residual), then max(y, 0) if `relu`.
template <class T>
struct Operation {
  const T* scale;
  const T* shift;
  bool relu = false;
};

template <class S>
struct Kernels {
  using T = Computed<S>;

  // Computes the mean of each channel, and the sum of squared differences from it. Adds blocks of rows in Computed<S>, and their sums in
  // float64.
  void (*moments)(const S* x, int64_t num_rows, int64_t num_channels, double* mean, double* squares);
  // `residual` may be null.
  void (*normalise)(const Operation<T>& operation, const S* x, const S* residual, S* y, int64_t num_rows, int64_t num_channels);
  // Computes for each channel the sums of dy and of dy * (x - mean), where dy is replaced by 0 if the ReLU's output was 0. That output is
  // read from `y`, or computed from x if `y` is null, which is only possible without a residual. If `masked` is not null, which requires a
  // ReLU and `y`, the masked dy is written to it.
  void (*gradient_sums)(const Operation<T>& operation, const S* dy, const S* x, const S* y, const T* mean, S* masked, int64_t num_rows,
                        int64_t num_channels, double* sum_dy, double* sum_dy_x);
  // Computes dx = dy * dy_factor + x * x_factor + constant; the factors and the constant are one value per channel. dy is replaced by 0
  // where the output of a ReLU without a residual was 0. If dy is `masked` of gradient_sums(), `operation.relu` must be false.
  void (*input_gradient)(const Operation<T>& operation, const S* dy, const S* x, const T* dy_factor, const T* x_factor, const T* constant,
                         S* dx, int64_t num_rows, int64_t num_channels);
};

// For the instruction set of this processor.
template <class S>
Kernels<S> kernels();

}  // namespace trainer::nn::fused_norm
