#pragma once
// Launches the kernels of gpu_kernels.h: batch normalisation with a ReLU and a residual addition on a GPU.

#include <torch/types.h>

#include <array>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "device/cuda_module.h"
#include "nn/fused_norm/fused_norm.h"
#include "nn/fused_norm/passes.h"

namespace trainer::nn::fused_norm {

// Thread-safe. All tensors are on one device, float32 unless noted; x, y, residual, dy, masked and dx have one of supported types.
class GpuKernels {
 public:
  explicit GpuKernels(const device::CudaModule& cuda) : cuda_(cuda) {}

  static bool supports(torch::ScalarType dtype);

  // In training, the statistics of the batch x [N, C, H, W], with which it updates the running statistics; otherwise the running ones. In
  // training with a group: collective, with one all_gather; x may be empty.
  Statistics statistics(const torch::Tensor& x, const Layer& layer) const;
  // Writes y = x * scale + shift (+ residual), then max(y, 0) if `relu`.
  void normalise(const torch::Tensor& x, const torch::Tensor& residual, const ScaleAndShift& affine, bool relu,
                 const torch::Tensor& y) const;
  // The gradients from dy, the gradient of y. In training with a group: collective, with one all_reduce if dx is needed.
  Gradients differentiate(const torch::Tensor& dy, const Forward& forward, const Needed& needed) const;

 private:
  enum Kernel : size_t { kMoments, kMerge, kStatistics, kNormalise, kGradientSums, kGradients, kInputGradient, kNumKernels };
  using Kernels = std::array<const void*, kNumKernels>;

  // The kernels for tensors of this type.
  const Kernels& kernels_for(const torch::Tensor& x) const;
  template <class Arguments>
  void launch_over_rows(Kernel kernel, const torch::Tensor& x, int64_t num_parts, const Arguments& arguments) const;
  template <class Arguments>
  void launch_over_channels(Kernel kernel, const torch::Tensor& x, const Arguments& arguments) const;

  const device::CudaModule& cuda_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<torch::ScalarType, int>, Kernels> kernels_;  // by type and device
};

// The texts of gpu_arguments.h and gpu_kernels.h (cmake/EmbedFiles.cmake).
extern const std::string_view kGpuArguments;
extern const std::string_view kGpuKernels;

}  // namespace trainer::nn::fused_norm
