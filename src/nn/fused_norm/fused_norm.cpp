#include "nn/fused_norm/fused_norm.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <optional>

#include "nn/fused_norm/gpu.h"
#include "nn/fused_norm/passes.h"
#include "nn/parallel.h"

namespace trainer::nn::fused_norm {
namespace {

using torch::autograd::AutogradContext;

constexpr auto kLayout = at::MemoryFormat::ChannelsLast;

int64_t num_rows(const torch::Tensor& x) { return x.numel() / x.size(1); }

// The number of parts in which the rows of x are divided among the threads, in the same way in each call, so that sums over the rows are
// bitwise the same.
int64_t num_parts_of(const torch::Tensor& x) {
  constexpr int64_t kFewRows = 256;
  return std::clamp<int64_t>(num_rows(x) / kFewRows, 1, at::get_num_threads());
}

// Calls act(S(), part, position of its first value, its number of rows) for all parts in parallel.
template <class Act>
void for_each_part(const torch::Tensor& x, const Act& act) {
  const int64_t num_parts = num_parts_of(x);
  const auto begin_of = [&](int64_t part) { return num_rows(x) * part / num_parts; };
  dispatch_stored(x.scalar_type(), [&](auto type) {
    parallel_for(0, num_parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) act(type, part, begin_of(part) * x.size(1), begin_of(part + 1) - begin_of(part));
    });
  });
}

}  // namespace

torch::Tensor local_moments(const torch::Tensor& x) {
  const int64_t num_channels = x.size(1);
  const auto each = at::zeros({num_parts_of(x), 2 * num_channels + 1}, torch::kFloat64);
  for_each_part(x, [&, values = each.data_ptr<double>()]<class S>(S, int64_t part, int64_t first, int64_t rows) {
    if (rows == 0) return;
    double* mean = values + part * (2 * num_channels + 1);
    double* variance = mean + num_channels;
    kernels<S>().moments(values_of<S>(x, first), rows, num_channels, /*rows_before=*/0, mean, variance);
    for (int64_t c = 0; c < num_channels; ++c) variance[c] /= static_cast<double>(rows);
    mean[2 * num_channels] = static_cast<double>(rows);
  });
  return each.size(0) == 1 ? each[0] : merge_moments(each);
}

void normalise_rows(const torch::Tensor& x, const torch::Tensor& residual, const ScaleAndShift& affine, FusedActivation activation,
                    const torch::Tensor& y) {
  for_each_part(x, [&]<class S>(S, int64_t /*part*/, int64_t first, int64_t rows) {
    kernels<S>().normalise(operation_of<S>(affine, activation), values_of<S>(x, first), values_of<S>(residual, first),
                           mutable_values_of<S>(y, first), rows, x.size(1));
  });
}

torch::Tensor gradient_sums(const torch::Tensor& dy, const Forward& forward, const torch::Tensor& masked) {
  const auto& x = forward.x;
  const auto mean = forward.statistics.batch.mean.to(forward.statistics.affine.scale.scalar_type());
  const int64_t num_channels = x.size(1);
  const auto each = at::zeros({num_parts_of(x), 2, num_channels}, torch::kFloat64);
  for_each_part(x, [&, sums = each.data_ptr<double>()]<class S>(S, int64_t part, int64_t first, int64_t rows) {
    double* sum = sums + part * 2 * num_channels;
    kernels<S>().gradient_sums(operation_of<S>(forward.statistics.affine, forward.activation), values_of<S>(dy, first),
                               values_of<S>(x, first), values_of<S>(forward.y, first), values_of<Computed<S>>(mean),
                               mutable_values_of<S>(masked, first), rows, num_channels, sum, sum + num_channels);
  });
  return each.sum(0);
}

void input_gradient(const torch::Tensor& dy, const torch::Tensor& x, const ScaleAndShift& affine, FusedActivation activation,
                    const InputFactors& factors, const torch::Tensor& dx) {
  for_each_part(x, [&]<class S>(S, int64_t /*part*/, int64_t first, int64_t rows) {
    using T = Computed<S>;
    kernels<S>().input_gradient(operation_of<S>(affine, activation), values_of<S>(dy, first), values_of<S>(x, first),
                                values_of<T>(affine.scale), values_of<T>(factors.x), values_of<T>(factors.constant),
                                mutable_values_of<S>(dx, first), rows, x.size(1));
  });
}

namespace {

BatchStatistics running_statistics(const Layer& layer) {
  return {layer.running_mean.to(torch::kFloat64), (layer.running_var.to(torch::kFloat64) + layer.eps).rsqrt(),
          at::ones({1}, torch::kFloat64)};
}

// (x - mean) * invstd * weight + bias
ScaleAndShift scale_and_shift(const BatchStatistics& batch, const torch::Tensor& weight, const torch::Tensor& bias) {
  const auto scale = batch.invstd * weight;
  return {scale.to(weight.scalar_type()), (bias - batch.mean * scale).to(weight.scalar_type())};
}

}  // namespace

Statistics joined_statistics(const torch::Tensor& moments, at::IntArrayRef sizes, const Layer& layer) {
  const auto batch =
      join_statistics(moments, layer.running_mean, layer.running_var, layer.batch_weight, layer.eps, layer.group.get(), sizes);
  return {batch, scale_and_shift(batch, layer.weight, layer.bias)};
}

InputFactors input_factors(const Forward& forward, const torch::Tensor& local_sums) {
  const auto& [batch, affine] = forward.statistics;
  const auto dtype = affine.scale.scalar_type();
  if (!forward.is_training) return {at::zeros_like(affine.scale), at::zeros_like(affine.scale)};
  auto sums = local_sums.clone();
  if (forward.group) forward.group->sum_in_rank_order({&sums, 1});
  // dx = (dy - mean(dy) - (x - mean) * invstd² * mean(dy * (x - mean))) * invstd * weight
  const auto exact_scale = affine.scale.to(torch::kFloat64);
  const auto x_factor = -exact_scale * batch.invstd.square() * sums[1] / batch.count;
  const auto constant = -exact_scale * sums[0] / batch.count - x_factor * batch.mean;
  return {x_factor.to(dtype), constant.to(dtype)};
}

Gradients parameter_gradients(const Forward& forward, const torch::Tensor& local_sums, const Needed& needed) {
  const auto& [batch, affine] = forward.statistics;
  const auto dtype = affine.scale.scalar_type();
  Gradients gradients;
  if (needed.weight) gradients.weight = (local_sums[1] * batch.invstd).to(dtype);
  if (needed.bias) gradients.bias = local_sums[0].to(dtype);
  return gradients;
}

namespace {

Statistics statistics_of(const torch::Tensor& x, const Layer& layer) {
  if (layer.gpu) return layer.gpu->statistics(x, layer);
  if (layer.is_training) return joined_statistics(local_moments(x), x.sizes(), layer);
  const auto running = running_statistics(layer);
  return {running, scale_and_shift(running, layer.weight, layer.bias)};
}

Gradients differentiate(torch::Tensor dy, const Forward& forward, const Needed& needed) {
  const auto masked = forward.y.defined() ? at::empty_like(forward.x) : torch::Tensor();
  torch::Tensor local_sums;
  if (needed.weight || needed.bias || forward.is_training || masked.defined()) local_sums = gradient_sums(dy, forward, masked);
  if (masked.defined()) dy = masked;
  auto gradients = parameter_gradients(forward, local_sums, needed);
  gradients.residual = dy;
  if (!needed.x) return gradients;
  gradients.x = at::empty_like(forward.x);
  const auto activation = masked.defined() ? FusedActivation::kNone : forward.activation;
  input_gradient(dy, forward.x, forward.statistics.affine, activation, input_factors(forward, local_sums), gradients.x);
  return gradients;
}

class FusedNorm : public torch::autograd::Function<FusedNorm> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const std::optional<torch::Tensor>& residual,
                               const torch::Tensor& /*weight*/, const torch::Tensor& /*bias*/, const Layer& layer,
                               FusedActivation activation) {
    RECORD_FUNCTION("trainer::fused_norm", c10::ArrayRef<const c10::IValue>{});
    const auto [batch, affine] = statistics_of(x, layer);
    auto y = at::empty_like(x);
    const auto added = residual.value_or(torch::Tensor());
    if (layer.gpu) {
      layer.gpu->normalise(x, added, affine, activation, y);
    } else {
      normalise_rows(x, added, affine, activation, y);
    }
    const bool has_residual = residual.has_value();
    context->save_for_backward({x, activation == FusedActivation::kRelu && has_residual ? y : torch::Tensor(), batch.mean, batch.invstd,
                                batch.count, affine.scale, affine.shift});
    context->saved_data["activation"] = static_cast<int64_t>(activation);
    context->saved_data["has_residual"] = has_residual;
    context->saved_data["is_training"] = layer.is_training;
    context->saved_data["group"] = hold(layer.group);
    context->saved_data["gpu"] = hold(layer.gpu);
    return y;
  }

  static torch::autograd::variable_list backward(AutogradContext* context, const torch::autograd::variable_list& output_gradients) {
    RECORD_FUNCTION("trainer::fused_norm_backward", c10::ArrayRef<const c10::IValue>{});
    TORCH_CHECK(!at::GradMode::is_enabled(), "fused batch normalisation does not support second derivatives; set runtime.fuse: off");
    const auto saved = context->get_saved_variables();
    const Forward forward{.x = saved[0],
                          .y = saved[1],
                          .statistics = {.batch = {.mean = saved[2], .invstd = saved[3], .count = saved[4]},
                                         .affine = {.scale = saved[5], .shift = saved[6]}},
                          .activation = FusedActivation{static_cast<int>(context->saved_data["activation"].toInt())},
                          .is_training = context->saved_data["is_training"].toBool(),
                          .group = held<distributed::ProcessGroup>(context->saved_data["group"])};
    const bool has_residual = context->saved_data["has_residual"].toBool();
    // A missing residual is not counted as an input.
    const Needed needed{.x = context->needs_input_grad(0),
                        .weight = context->needs_input_grad(has_residual ? 2 : 1),
                        .bias = context->needs_input_grad(has_residual ? 3 : 2)};
    const auto dy = output_gradients[0].contiguous(kLayout);
    const auto gpu = held<GpuKernels>(context->saved_data["gpu"]);
    const auto gradients = gpu ? gpu->differentiate(dy, forward, needed) : differentiate(dy, forward, needed);
    return {gradients.x,    has_residual ? gradients.residual : torch::Tensor(), gradients.weight, gradients.bias, torch::Tensor(),
            torch::Tensor()};
  }
};

class Fold : public torch::autograd::Function<Fold> {
 public:
  static torch::autograd::variable_list forward(AutogradContext* context, const torch::Tensor& weight, const torch::Tensor& norm_weight,
                                                const torch::Tensor& norm_bias, const Layer& layer) {
    const auto running = running_statistics(layer);
    const auto [scale, shift] = scale_and_shift(running, norm_weight, norm_bias);
    context->save_for_backward({weight, scale, running.mean, running.invstd});
    return {weight * scale.view({-1, 1, 1, 1}), shift};
  }

  static torch::autograd::variable_list backward(AutogradContext* context, const torch::autograd::variable_list& output_gradients) {
    const auto saved = context->get_saved_variables();
    const auto &weight = saved[0], &scale = saved[1], &mean = saved[2], &invstd = saved[3];
    const auto &of_folded = output_gradients[0], &of_shift = output_gradients[1];
    torch::Tensor of_weight, of_norm_weight;
    if (context->needs_input_grad(0)) of_weight = of_folded * scale.view({-1, 1, 1, 1});
    if (context->needs_input_grad(1)) {
      const auto sums = (of_folded * weight).sum({1, 2, 3}, /*keepdim=*/false, torch::kFloat64);
      of_norm_weight = ((sums - mean * of_shift) * invstd).to(scale.scalar_type());
    }
    return {of_weight, of_norm_weight, of_shift, torch::Tensor()};
  }
};

}  // namespace

bool supports(const torch::Tensor& x, const torch::Tensor& residual, const Layer& layer) {
  const auto dtype = x.scalar_type();
  const auto is_possible = [&](const torch::Tensor& tensor) {
    // Convolutions do not keep the format of an empty tensor, which only training on several ranks has.
    const bool is_dense = tensor.dim() == 4 && (tensor.numel() == 0 || tensor.is_contiguous(kLayout));
    return is_dense && tensor.scalar_type() == dtype && (layer.gpu ? layer.gpu->supports(tensor) : tensor.is_cpu());
  };
  const auto computed = layer.gpu ? torch::kFloat32 : computed_type(dtype);
  const bool is_possible_type = computed == torch::kFloat32 || computed == torch::kFloat64;
  return is_possible_type && layer.weight.scalar_type() == computed && is_possible(x) && x.size(1) == layer.weight.numel() &&
         x.size(1) % (layer.gpu ? kChannels : kFewestChannels) == 0 && x.size(1) <= GpuKernels::kMostChannels &&
         (!residual.defined() || (is_possible(residual) && residual.sizes() == x.sizes()));
}

Folded fold(const torch::Tensor& weight, const torch::Tensor& bias, const Layer& layer) {
  const auto folded = Fold::apply(weight, layer.weight, layer.bias, layer);
  if (!bias.defined()) return {folded[0], folded[1]};
  const auto invstd = running_statistics(layer).invstd.to(weight.scalar_type());
  return {folded[0], folded[1] + bias * layer.weight * invstd};
}

std::optional<FusedActivation> fused_activation(Activation activation) {
  static_assert(static_cast<int>(Activation::kSilu) == static_cast<int>(FusedActivation::kSilu), "FusedActivation begins like Activation");
  return activation <= Activation::kSilu ? std::optional(static_cast<FusedActivation>(activation)) : std::nullopt;
}

torch::Tensor normalise(const torch::Tensor& x, const torch::Tensor& residual, const Layer& layer, FusedActivation activation) {
  // An autograd function does not accept undefined tensors.
  const auto given = residual.defined() ? std::optional(residual) : std::nullopt;
  return FusedNorm::apply(x, given, layer.weight, layer.bias, layer, activation);
}

}  // namespace trainer::nn::fused_norm
