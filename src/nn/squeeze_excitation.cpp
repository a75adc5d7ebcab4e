#include <ATen/record_function.h>

#include <memory>

#include "nn/batch_norm.h"
#include "nn/fused_norm/kernels.h"
#include "nn/layers.h"
#include "nn/parallel.h"
#include "nn/stored_tensor.h"
#include "trainer/nn.h"
#include "trainer/torch.h"

namespace trainer::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls act(S(), image, position of its first value) for the images of x in parallel.
template <class Act>
void for_each_image(const torch::Tensor& x, const Act& act) {
  const int64_t size = x.numel() / x.size(0);
  dispatch_stored(x.scalar_type(), [&](auto type) {
    parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t image = begin; image < end; ++image) act(type, image, image * size);
    });
  });
}

// x * scale + constant. `scale` and `constant`: [N, C].
torch::Tensor scaled_plus(const torch::Tensor& x, const torch::Tensor& scale, const torch::Tensor& constant) {
  auto y = at::empty_like(x);
  for_each_image(x, [&]<class S>(S, int64_t image, int64_t first) {
    using T = Computed<S>;
    const int64_t channel = image * x.size(1);
    const fused_norm::Operation<T> operation{.scale = values_of<T>(scale, channel), .shift = values_of<T>(constant, channel)};
    fused_norm::kernels<S>().normalise(operation, values_of<S>(x, first), nullptr, mutable_values_of<S>(y, first), x.size(2) * x.size(3),
                                       x.size(1));
  });
  return y;
}

// The sum of dy * x over the pixels, [N, C].
torch::Tensor sum_of_products(const torch::Tensor& dy, const torch::Tensor& x) {
  const auto sums = at::zeros({x.size(0), 2, x.size(1)}, torch::kFloat64);
  const auto zeros = at::zeros({x.size(1)}, computed_type(x.scalar_type()));
  for_each_image(x, [&]<class S>(S, int64_t image, int64_t first) {
    const auto* zero = values_of<Computed<S>>(zeros);
    double* of_image = sums.mutable_data_ptr<double>() + image * 2 * x.size(1);
    fused_norm::kernels<S>().gradient_sums({.scale = zero, .shift = zero}, values_of<S>(dy, first), values_of<S>(x, first), nullptr, zero,
                                           nullptr, x.size(2) * x.size(3), x.size(1), of_image, of_image + x.size(1));
  });
  return sums.select(1, 1).to(zeros.scalar_type());
}

// The scales of a block, which its two operators share.
struct Scales {
  torch::Tensor values;  // [N, C]
};

// Returns the averages of x over its pixels, and x itself for ScaledChannels, which gives this operator the gradient of the block's output
// in place of the gradient of x. So the gradient of x is computed once, from both, without a tensor of its size for each.
class Averages : public torch::autograd::Function<Averages> {
 public:
  static variable_list forward(AutogradContext* context, const torch::Tensor& x, const std::shared_ptr<const Scales>& scales) {
    context->saved_data["scales"] = hold(scales);
    context->saved_data["num_pixels"] = x.size(2) * x.size(3);
    return {at::adaptive_avg_pool2d(x, {1, 1}), x.view_as(x)};
  }
  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    RECORD_FUNCTION("trainer::squeeze_excitation_backward", c10::ArrayRef<const c10::IValue>{});
    const auto scales = held<Scales>(context->saved_data["scales"]);
    const auto constant = output_gradients[0].flatten(1).to(scales->values.scalar_type()) / context->saved_data["num_pixels"].toInt();
    return {scaled_plus(output_gradients[1], scales->values, constant), torch::Tensor()};
  }
};

class ScaledChannels : public torch::autograd::Function<ScaledChannels> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& scale,
                               const std::shared_ptr<Scales>& scales) {
    context->save_for_backward({x});
    context->saved_data["type"] = scale.scalar_type();
    scales->values = scale.flatten(1).to(computed_type(x.scalar_type())).contiguous();
    return scaled_plus(x, scales->values, at::zeros_like(scales->values));
  }
  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    RECORD_FUNCTION("trainer::squeeze_excitation_backward", c10::ArrayRef<const c10::IValue>{});
    TORCH_CHECK(!at::GradMode::is_enabled(), "fused squeeze-and-excitation does not support second derivatives; set runtime.fuse: off");
    const auto dy = output_gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    const auto x = context->get_saved_variables()[0];
    const auto of_scale = sum_of_products(dy, x).to(context->saved_data["type"].toScalarType());
    return {dy, of_scale.view({x.size(0), x.size(1), 1, 1}), torch::Tensor()};
  }
};

}  // namespace

SqueezeExcitation::SqueezeExcitation(int64_t channels, int64_t squeezed_channels, Activation activation, Activation scale_activation)
    : activation_(activation), scale_activation_(scale_activation) {
  squeeze_ = register_module("fc1", std::make_shared<Conv2d>(channels, squeezed_channels, 1, Conv2dOptions{.bias = true}));
  expand_ = register_module("fc2", std::make_shared<Conv2d>(squeezed_channels, channels, 1, Conv2dOptions{.bias = true}));
}

torch::Tensor SqueezeExcitation::scale_of(const torch::Tensor& averages) {
  const auto convolve = [&](Conv2d& layer, const torch::Tensor& x) {
    if (!is_fused_) return layer.forward(x);
    // Maps of one pixel; a product of matrices is several times as fast as a convolution on a CPU, and adds the bias itself on a GPU.
    const auto y = at::linear(x.flatten(1), used_weight(layer.weight).flatten(1), used_weight(layer.bias));
    return observed(layer, y.unflatten(1, {-1, 1, 1}));
  };
  return activate(convolve(*expand_, activate(convolve(*squeeze_, averages), activation_)), scale_activation_);
}

torch::Tensor SqueezeExcitation::forward(const torch::Tensor& x) {
  const auto computed = computed_type(x.scalar_type());
  const bool is_possible = x.is_cpu() && (computed == torch::kFloat32 || computed == torch::kFloat64) && x.numel() > 0 &&
                           x.size(1) % kFewestChannels == 0 && x.is_contiguous(at::MemoryFormat::ChannelsLast);
  if (!is_fused_ || !is_possible || !at::GradMode::is_enabled() || !x.requires_grad()) {
    return x * scale_of(at::adaptive_avg_pool2d(x, {1, 1}));
  }
  const auto scales = std::make_shared<Scales>();
  const auto averaged = Averages::apply(x, std::shared_ptr<const Scales>(scales));
  return ScaledChannels::apply(averaged[1], scale_of(averaged[0]), scales);
}

}  // namespace trainer::nn
