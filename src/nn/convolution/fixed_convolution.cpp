#include "nn/convolution/fixed_convolution.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>
#include <utility>

#include "trainer/torch.h"

namespace trainer::nn::convolution {
namespace {

using torch::Tensor;
using Scalars = torch::List<std::optional<at::Scalar>>;
using OptionalText = std::optional<std::string_view>;

// LibTorch does not declare these operators in a header.
using Reorder = Tensor(const Tensor&, at::IntArrayRef padding, at::IntArrayRef stride, at::IntArrayRef dilation, int64_t groups,
                       at::OptionalIntArrayRef input_size);
using Convolve = Tensor(const Tensor&, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef padding,
                        at::IntArrayRef stride, at::IntArrayRef dilation, int64_t groups, std::string_view activation, Scalars,
                        OptionalText algorithm);
using ConvolveAndAdd = Tensor(const Tensor&, const Tensor& added, const Tensor& weight, const std::optional<Tensor>& bias,
                              at::IntArrayRef padding, at::IntArrayRef stride, at::IntArrayRef dilation, int64_t groups,
                              std::string_view operation, std::optional<at::Scalar> alpha, OptionalText activation, Scalars,
                              OptionalText algorithm);

template <class Function>
auto operator_of(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Function>();
}

constexpr std::array<int64_t, 2> kDilation = {1, 1};

// oneDNN's name of an activation; empty if it has none.
std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return "none";
    case Activation::kRelu:
      return "relu";
    case Activation::kRelu6:
      return "hardtanh";
    case Activation::kHardswish:
      return "hardswish";
    case Activation::kSilu:
      return "swish";
    default:
      return "";
  }
}

}  // namespace

FixedConvolution::FixedConvolution(const Tensor& x, const Tensor& weight, Tensor bias, int64_t stride, int64_t padding, int64_t groups)
    : bias_(std::move(bias)), stride_{stride, stride}, padding_{padding, padding}, groups_(groups) {
  static const auto reorder = operator_of<Reorder>("mkldnn::_reorder_convolution_weight");
  weight_ = reorder.call(weight, padding_, stride_, kDilation, groups, x.sizes());
}

bool FixedConvolution::supports(const Tensor& x) {
  return x.is_cpu() && x.scalar_type() == torch::kFloat32 && x.dim() == 4 && x.numel() > 0 &&
         x.is_contiguous(at::MemoryFormat::ChannelsLast) && at::hasMKLDNN() && at::globalContext().userEnabledMkldnn() &&
         !at::autocast::is_autocast_enabled(at::kCPU);
}

Tensor FixedConvolution::run(const Tensor& x, Activation activation, const Tensor& residual) const {
  static const auto convolve = operator_of<Convolve>("mkldnn::_convolution_pointwise");
  static const auto convolve_and_add = operator_of<ConvolveAndAdd>("mkldnn::_convolution_pointwise", "binary");
  const auto bias = bias_.defined() ? std::optional(bias_) : std::nullopt;
  const auto name = name_of(activation);
  Scalars limits;
  if (activation == Activation::kRelu6) {
    limits.push_back(at::Scalar(0.0));
    limits.push_back(at::Scalar(6.0));
  }
  // LibTorch 2.11 fails to add maps of one pixel: "could not create a memory".
  const bool can_add = residual.defined() && residual.size(2) * residual.size(3) > 1;
  if (can_add && (activation == Activation::kNone || activation == Activation::kRelu)) {
    const auto added = residual.contiguous(at::MemoryFormat::ChannelsLast);
    const auto then = activation == Activation::kRelu ? OptionalText(name) : std::nullopt;
    return convolve_and_add.call(x, added, weight_, bias, padding_, stride_, kDilation, groups_, "add", std::nullopt, then, limits, "");
  }
  if (residual.defined() || name.empty()) {
    const auto y = convolve.call(x, weight_, bias, padding_, stride_, kDilation, groups_, "none", limits, "");
    return activate(residual.defined() ? y + residual : y, activation);
  }
  return convolve.call(x, weight_, bias, padding_, stride_, kDilation, groups_, name, limits, "");
}

}  // namespace trainer::nn::convolution
