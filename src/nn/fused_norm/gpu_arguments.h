// The arguments of the kernels in gpu_kernels.h. Both the host's compiler and NVRTC compile this file, so it includes nothing.
#pragma once

namespace trainer::nn::fused_norm {

// nn::FusedActivation.
enum GpuActivation { kGpuNone, kGpuRelu, kGpuRelu6, kGpuHardswish, kGpuSilu };

constexpr int kSumThreads = 512;  // of a block that computes sums; a power of two. Other blocks have fewer.

// x, residual, y, dy, masked and dx are dense tensors of `num_rows` rows of `num_channels` values, at addresses that are multiples of 16.
// All other pointers are float32 arrays with one value per channel, unless noted.
struct Rows {
  long long num_rows;
  int num_channels;  // a multiple of 8
};

// The statistics of all parts together, the update of the running statistics, and the normalisation as x * scale + shift. If `parts` is
// null, the statistics are the running ones, which do not change.
struct StatisticsArguments {
  const float* parts;  // [num_parts, 2 * num_channels + 1]: MomentsArguments::merged of each rank; not used by the kernel `moments`
  int num_parts;
  int num_channels;
  double batch_weight;  // weight of the batch in the running statistics
  double eps;
  const float* weight;
  const float* bias;
  float* running_mean;
  float* running_var;
  float* mean;
  float* invstd;
  float* scale;
  float* shift;
  float* count;  // one value: the number of rows of all parts
};

// Mean and biased variance of each channel, and the number of rows, of each of gridDim.y parts of the rows. From them the statistics; or,
// if `merged` is not null, what the ranks exchange: mean, 1 / sqrt(variance + eps) and number of rows of all parts, as in Python's
// SyncBatchNorm, because a rank may compute that with LibTorch's kernels.
struct MomentsArguments {
  Rows rows;
  const void* x;
  float* parts;           // [gridDim.y, 2 * num_channels + 1]
  unsigned* num_arrived;  // one for each group of channels; 0 before and after the kernel
  float* merged;          // [2 * num_channels + 1]
  StatisticsArguments statistics;
};

// y = the activation of x * scale + shift (+ residual).
struct NormaliseArguments {
  Rows rows;
  const void* x;
  const void* residual;  // may be null
  void* y;
  const float* scale;
  const float* shift;
  GpuActivation activation;
};

// What is computed from the sums of dy and of dy * (x - mean). Pointers to results that are not needed are null.
struct GradientsArguments {
  int num_channels;
  float* sums;  // [2, num_channels]: a result of the kernel `gradient_sums`, the input of `gradients`
  const float* invstd;
  float* dweight;
  float* dbias;
  // dx = dy * scale + x * x_factor + constant
  const float* mean;
  const float* scale;
  const float* count;  // one value
  float* x_factor;
  float* constant;
};

// Those sums, of dy times the derivative of the activation. The activation's input is computed from x, or, if `y` is not null, its
// output, which then must be that of a ReLU, is read from there. If `masked` is not null, the product is written to it.
struct GradientSumsArguments {
  Rows rows;
  const void* dy;
  const void* x;
  const void* y;
  void* masked;
  const float* shift;
  GpuActivation activation;
  float* parts;                  // [gridDim.y, 2, num_channels]
  unsigned* num_arrived;         // as in MomentsArguments
  GradientsArguments gradients;  // also has the mean and the scale
};

// dx = dy * scale + x * x_factor + constant; without the last two if `x_factor` is null. dy is first multiplied by the
// derivative of the activation, whose input is x * scale + shift.
struct InputGradientArguments {
  Rows rows;
  const void* dy;
  const void* x;
  void* dx;
  const float* scale;
  const float* shift;
  const float* x_factor;
  const float* constant;
  GpuActivation activation;
};

}  // namespace trainer::nn::fused_norm
