#pragma once
// The passes of the fused operator (passes.h) on a GPU, with the kernels of gpu_kernels.h.

#include <torch/types.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <tuple>

#include "device/cuda_module.h"
#include "nn/fused_norm/passes.h"

namespace trainer::nn::fused_norm {

struct RowShape;

// All tensors are on one device, float32 unless noted; x, y, residual, dy, masked and dx have one of the supported types. May be used by
// several threads, but statistics() in training and differentiate() only on one stream at a time.
class GpuKernels {
 public:
  // For tensors on devices of this type.
  GpuKernels(const device::CudaModule& cuda, c10::DeviceType device_type) : cuda_(cuda), device_type_(device_type) {}

  // Whether a tensor has a suitable type and address, and its device this object's type.
  bool supports(const torch::Tensor& tensor) const;
  // The largest number of channels.
  static constexpr int64_t kMostChannels = 1 << 16;

  // In training, the statistics of the batch x [N, C, H, W], with which it updates the running statistics; otherwise the running ones. In
  // training with a group: collective, with one all_gather; x may be empty.
  Statistics statistics(const torch::Tensor& x, const Layer& layer) const;
  // Writes the activation of x * scale + shift (+ residual) to y.
  void normalise(const torch::Tensor& x, const torch::Tensor& residual, const ScaleAndShift& affine, FusedActivation activation,
                 const torch::Tensor& y) const;
  // The gradients from dy, the gradient of y. In training with a group: collective, with one all_reduce if dx is needed.
  Gradients differentiate(const torch::Tensor& dy, const Forward& forward, const Needed& needed) const;

 private:
  enum Kernel : size_t { kMoments, kStatistics, kNormalise, kGradientSums, kGradients, kInputGradient };
  static constexpr std::array kNames = {"moments", "statistics", "normalise", "gradient_sums", "gradients", "input_gradient"};
  struct Kernels {
    std::array<const void*, kNames.size()> functions;
    torch::Tensor num_arrived;  // MomentsArguments::num_arrived, int32
  };

  // The kernels for tensors of this type. Those that compute an activation compute only this one.
  const Kernels& kernels_for(const torch::Tensor& x, FusedActivation activation = FusedActivation::kNone) const;
  unsigned* num_arrived(const torch::Tensor& x) const;
  template <class Arguments>
  void launch_over_rows(const Kernels& kernels, Kernel kernel, const torch::Tensor& x, const RowShape& shape,
                        const Arguments& arguments) const;
  template <class Arguments>
  void launch_over_channels(Kernel kernel, const torch::Tensor& x, const Arguments& arguments) const;

  const device::CudaModule& cuda_;
  const c10::DeviceType device_type_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<torch::ScalarType, FusedActivation, int>, Kernels> kernels_;  // by type, activation and device
};

// The texts of gpu_arguments.h and gpu_kernels.h (cmake/EmbedFiles.cmake).
extern const std::string_view kGpuArguments;
extern const std::string_view kGpuKernels;

}  // namespace trainer::nn::fused_norm
