#include "nn/convolution/strided.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/torch.h>

#include <optional>

#include "nn/convolution/strided_kernels.h"

#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for uses only the calling thread unless this file is compiled with -fopenmp"
#endif

namespace trainer::nn::convolution {
namespace {

using torch::autograd::AutogradContext;

torch::Tensor weight_gradient(const torch::Tensor& x, const torch::Tensor& dy, const torch::Tensor& weight, int64_t stride) {
  RECORD_FUNCTION("trainer::strided_weight_gradient", c10::ArrayRef<const c10::IValue>{});
  const StridedShape shape{.num_images = x.size(0),
                           .height = x.size(2),
                           .width = x.size(3),
                           .in_channels = x.size(1),
                           .out_channels = weight.size(0),
                           .stride = stride};
  auto gradient = at::empty(weight.sizes(), x.options(), at::MemoryFormat::ChannelsLast).zero_();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "strided_weight_gradient", [&] {
    const auto* input = x.const_data_ptr<scalar_t>();
    const auto* given = dy.const_data_ptr<scalar_t>();
    auto* result = gradient.data_ptr<scalar_t>();
    at::parallel_for(0, num_gradient_parts(shape), 1,
                     [&](int64_t begin, int64_t end) { add_strided_weight_gradient(shape, input, given, result, begin, end); });
  });
  return gradient;
}

class StridedConvolution : public torch::autograd::Function<StridedConvolution> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias, int64_t stride) {
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["has_bias"] = bias.has_value();
    return at::conv2d(x, weight, bias, stride, /*padding=*/1);
  }

  static torch::autograd::variable_list backward(AutogradContext* context, const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto& weight = saved[1];
    const int64_t stride = context->saved_data["stride"].toInt();
    const auto dy = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    torch::Tensor dx, dw, dbias;
    if (context->needs_input_grad(0)) {
      dx = std::get<0>(at::convolution_backward(dy, x, weight, /*bias_sizes=*/std::nullopt, stride, /*padding=*/1, /*dilation=*/1,
                                                /*transposed=*/false, /*output_padding=*/0, /*groups=*/1, {true, false, false}));
    }
    if (context->needs_input_grad(1)) dw = weight_gradient(x, dy, weight, stride);
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) dbias = dy.sum({0, 2, 3});
    return {dx, dw, dbias, torch::Tensor()};
  }
};

}  // namespace

bool takes_strided(const torch::Tensor& x, const torch::Tensor& weight) {
  const bool is_possible_type = x.scalar_type() == torch::kFloat32 || x.scalar_type() == torch::kFloat64;
  return x.is_cpu() && is_possible_type && x.dim() == 4 && weight.scalar_type() == x.scalar_type() && weight.size(2) == 3 &&
         weight.size(3) == 3 && weight.size(1) % kChannels == 0;
}

torch::Tensor convolve_strided(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, int64_t stride) {
  TORCH_CHECK(takes_strided(x, weight), "a strided convolution of ", x.sizes(), " with ", weight.sizes());
  // An autograd function does not take undefined tensors.
  const auto given = bias.defined() ? std::optional(bias) : std::nullopt;
  constexpr auto kLayout = at::MemoryFormat::ChannelsLast;
  return StridedConvolution::apply(x.contiguous(kLayout), weight.contiguous(kLayout), given, stride);
}

}  // namespace trainer::nn::convolution
