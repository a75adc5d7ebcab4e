#include "nn/layers.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "nn/convolution/convolution.h"
#include "nn/fixed_convolution.h"
#include "nn/fused_norm/fused_norm.h"
#include "trainer/nn.h"

namespace trainer::nn {
namespace {

// Converts x as autocast does for LibTorch's convolution.
torch::Tensor in_autocast_type(const torch::Tensor& x) {
  const bool is_cast = x.is_cpu() && x.scalar_type() == torch::kFloat32 && at::autocast::is_autocast_enabled(at::kCPU);
  return is_cast ? x.to(at::autocast::get_autocast_dtype(at::kCPU)) : x;
}

}  // namespace

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, Conv2dOptions options)
    : stride_(options.stride),
      padding_(options.same_padding ? 0 : options.padding),
      groups_(options.groups),
      has_same_padding_(options.same_padding) {
  weight = register_parameter("weight", torch::empty({out_channels, in_channels / groups_, kernel_size, kernel_size}));
  if (options.bias) bias = register_parameter("bias", torch::empty({out_channels}));
}

convolution::Padding Conv2d::padding_of(const torch::Tensor& x) const {
  if (!has_same_padding_) return padding_;
  const auto total = [&](int64_t size) { return std::max<int64_t>((ceil_div(size, stride_) - 1) * stride_ + weight.size(2) - size, 0); };
  const auto rows = total(x.size(2));
  const auto columns = total(x.size(3));
  return {rows / 2, columns / 2, rows - rows / 2, columns - columns / 2};
}

torch::Tensor Conv2d::padded(const torch::Tensor& x) const {
  if (!has_same_padding_) return x;
  const auto padding = padding_of(x);
  return at::constant_pad_nd(x, {padding.left, padding.right, padding.top, padding.bottom});
}

torch::Tensor Conv2d::forward(const torch::Tensor& given) {
  const auto input = padded(given);
  if (largest_tile_ && has_fixed_weights_ && !at::GradMode::is_enabled() && FixedConvolution::supports(input)) {
    const auto tile = winograd_tile(input);
    if (!fixed_alone_ || fixed_alone_->tile() != tile) {
      fixed_alone_ = std::make_shared<const FixedConvolution>(input, weight, bias, stride_, padding_, groups_, tile);
    }
    return observed(*this, fixed_alone_->run(input, FusedActivation::kNone, /*residual=*/{}));
  }
  return observed(*this, compute(largest_tile_ ? in_autocast_type(input) : input, weight, bias));
}

torch::Tensor Conv2d::compute(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b) const {
  if (const auto tile = winograd_tile(x)) return convolution::convolve(x, w, b, *tile);
  if (largest_tile_ && groups_ == 1 && stride_ > 1 && padding_ == 1 && convolution::supports(x, w, stride_)) {
    return convolution::convolve_strided(x, w, b, stride_);
  }
  if (largest_tile_ && convolution::supports_depthwise(x, w, stride_, padding_, groups_)) {
    return convolution::convolve_depthwise(x, used_weight(w), used_weight(b), stride_, padding_);
  }
  return at::conv2d(x, used_weight(w), used_weight(b), stride_, padding_, /*dilation=*/1, groups_);
}

std::optional<convolution::Tile> Conv2d::winograd_tile(const torch::Tensor& x) const {
  if (!largest_tile_ || groups_ != 1 || stride_ != 1 || padding_ != 1) return std::nullopt;
  const auto tile = convolution::fastest_tile(x, weight, *largest_tile_);
  // Predictions are often of one image. Of few tiles the algorithm reads more transformed weights than it saves multiplications.
  constexpr int64_t kFewestTiles = 32;
  const auto has_few_tiles = [&] {
    return x.size(0) * convolution::tiles_along(x.size(2), *tile) * convolution::tiles_along(x.size(3), *tile) < kFewestTiles;
  };
  return tile && has_fixed_weights_ && has_few_tiles() ? std::nullopt : tile;
}

torch::Tensor convolve_normalise(Conv2d& convolution, BatchNorm2d& norm, const torch::Tensor& x, Activation activation,
                                 const torch::Tensor& residual) {
  const auto separately = [&] {
    const auto y = convolution.forward(x);
    if (!residual.defined()) return norm.forward_activated(y, activation);
    return activation == Activation::kRelu ? norm.forward_relu(y, residual) : norm.forward(y) + residual;
  };
  if (!norm.uses_fused_operator() || norm.is_training() || LayerObserver::current() != nullptr) return separately();
  const auto cast = in_autocast_type(x);
  const auto tensors = {x, residual, convolution.weight, convolution.bias, norm.weight, norm.bias};
  const bool needs_gradients = at::GradMode::is_enabled() && std::ranges::any_of(tensors, &torch::Tensor::requires_grad);
  const bool can_use_tiles = !needs_gradients && (activation == Activation::kRelu || activation == Activation::kNone);
  const auto tile = can_use_tiles ? convolution.winograd_tile(cast) : std::nullopt;
  if (!tile && !FixedConvolution::supports(cast)) return separately();
  const auto input = convolution.padded(cast);
  const auto run_fixed = [&](const FixedConvolution& fixed) {
    const auto fused = fused_norm::fused_activation(activation);
    return fused ? fixed.run(input, *fused, residual) : activate(fixed.run(input, FusedActivation::kNone, residual), activation);
  };
  auto& kept = convolution.fixed_.at(tile ? 1 : 0);
  if (!needs_gradients && kept && kept->tile() == tile) return run_fixed(*kept);
  const auto [weight, bias] = norm.fold(convolution.weight, convolution.bias);
  if (needs_gradients) {
    auto y = convolution.compute(input, weight, bias);
    if (residual.defined()) y = y.add_(residual);
    if (activation == Activation::kRelu) return y.relu_();
    // Unlike relu6_(), the gradient of hardtanh_() needs only the result.
    return activation == Activation::kRelu6 ? at::hardtanh_(y, 0, 6) : activate(y, activation);
  }
  const auto fixed =
      std::make_shared<const FixedConvolution>(input, weight, bias, convolution.stride_, convolution.padding_, convolution.groups_, tile);
  if (convolution.has_fixed_weights_) kept = fixed;
  return run_fixed(*fixed);
}

torch::Tensor convolve_normalise_twice(const NormalisedConvolution& first, const NormalisedConvolution& depthwise, const torch::Tensor& x) {
  const auto fused = [](const NormalisedConvolution& layer) {
    const auto& norm = layer.norm;
    return norm.is_fused_ && norm.is_training() ? fused_norm::fused_activation(layer.activation) : std::nullopt;
  };
  const auto first_activation = fused(first);
  const auto second_activation = fused(depthwise);
  if (!first_activation || !second_activation || !depthwise.convolution.uses_depthwise_kernels() || LayerObserver::current() != nullptr) {
    return depthwise.forward(first.forward(x));
  }
  const auto y = first.convolution.forward(x);
  const fused_norm::DepthwiseBlock block{.first = first.norm.layer_for_batch(),
                                         .first_activation = *first_activation,
                                         .weight = used_weight(depthwise.convolution.weight),
                                         .stride = depthwise.convolution.stride_,
                                         .padding = depthwise.convolution.padding_of(y),
                                         .second = depthwise.norm.layer_for_batch(),
                                         .second_activation = *second_activation};
  if (!fused_norm::supports(y, block)) return depthwise.forward(first.norm.forward_activated(y, first.activation));
  auto z = fused_norm::normalise_depthwise(y, block);
  first.norm.count_batch();
  depthwise.norm.count_batch();
  return z;
}

std::shared_ptr<Conv2d> conv3x3(int64_t in_channels, int64_t out_channels, int64_t stride) {
  return std::make_shared<Conv2d>(in_channels, out_channels, 3, Conv2dOptions{.stride = stride, .padding = 1});
}

std::shared_ptr<Conv2d> conv1x1(int64_t in_channels, int64_t out_channels, int64_t stride) {
  return std::make_shared<Conv2d>(in_channels, out_channels, 1, Conv2dOptions{.stride = stride});
}

void use_winograd(const torch::nn::Module& network, std::optional<convolution::Tile> largest_tile) {
  for (auto* convolution : layers_of<Conv2d>(network)) convolution->use_winograd(largest_tile);
}

void fix_weights(const torch::nn::Module& network) {
  for (auto* convolution : layers_of<Conv2d>(network)) convolution->fix_weights();
}

Linear::Linear(int64_t in_features, int64_t out_features, bool has_bias) {
  weight = register_parameter("weight", torch::empty({out_features, in_features}));
  if (has_bias) bias = register_parameter("bias", torch::empty({out_features}));
}

torch::Tensor Linear::forward(const torch::Tensor& x) { return observed(*this, at::linear(x, used_weight(weight), used_weight(bias))); }

std::vector<torch::Tensor> trained_weights(const torch::nn::Module& network) {
  std::vector<torch::Tensor> weights;
  for (const auto& module : network.modules(/*include_self=*/false)) {
    const bool has_weights = module->as<Conv2d>() != nullptr || module->as<Linear>() != nullptr || module->as<SelfAttention>() != nullptr;
    if (!has_weights) continue;
    for (const auto& parameter : module->parameters(/*recurse=*/false)) {
      if (parameter.requires_grad()) weights.push_back(parameter);
    }
  }
  return weights;
}

namespace {

// Converts all tensors to another type with one kernel; undefined tensors stay undefined.
std::vector<torch::Tensor> converted(at::TensorList tensors, torch::ScalarType dtype) {
  std::vector<torch::Tensor> results;
  std::vector<torch::Tensor> from;
  std::vector<torch::Tensor> to;
  for (const auto& tensor : tensors) {
    results.push_back(tensor.defined() ? at::empty_like(tensor, tensor.options().dtype(dtype)) : torch::Tensor());
    if (!tensor.defined()) continue;
    from.push_back(tensor);
    to.push_back(results.back());
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
  return results;
}

class Conversion : public torch::autograd::Function<Conversion> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, at::TensorList weights,
                                                torch::ScalarType dtype) {
    context->set_materialize_grads(false);
    context->saved_data["dtype"] = weights.front().scalar_type();
    return converted(weights, dtype);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto results = converted(gradients, context->saved_data["dtype"].toScalarType());
    results.emplace_back();
    return results;
  }
};

}  // namespace

WeightCasts::WeightCasts(const std::vector<torch::Tensor>& weights, torch::ScalarType dtype) {
  const auto casts = Conversion::apply(at::TensorList(weights), dtype);
  for (size_t i = 0; i < weights.size(); ++i) casts_.emplace(weights[i].unsafeGetTensorImpl(), Cast{casts[i], weights[i]._version()});
}

torch::Tensor used_weight(const torch::Tensor& weight) {
  const auto* current = WeightCasts::current();
  if (current == nullptr || !weight.defined() || !at::autocast::is_autocast_enabled(weight.device().type())) return weight;
  const auto cast = current->casts_.find(weight.unsafeGetTensorImpl());
  const bool is_current = cast != current->casts_.end() && cast->second.version == weight._version();
  return is_current ? cast->second.value : weight;
}

void default_uniform_(torch::Tensor weight, torch::Tensor bias, at::Generator generator) {
  if (NoInitialValues::current() != nullptr) return;
  const torch::NoGradGuard no_grad;
  const int64_t fan_in = weight.numel() / weight.size(0);
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  weight.uniform_(-bound, bound, generator);
  if (bias.defined()) bias.uniform_(-bound, bound, generator);
}

void normal_(torch::Tensor tensor, double mean, double std, at::Generator generator) {
  if (NoInitialValues::current() != nullptr) return;
  const torch::NoGradGuard no_grad;
  tensor.normal_(mean, std, std::move(generator));
}

void init_convolutions_(const torch::nn::Module& network, const at::Generator& generator, Fan fan) {
  const torch::NoGradGuard no_grad;
  for (auto* convolution : layers_of<Conv2d>(network)) {
    const auto& weight = convolution->weight;
    const auto size = static_cast<double>(weight.numel() / weight.size(fan == Fan::kOut ? 1 : 0));
    normal_(weight, 0.0, std::sqrt(2.0 / size), generator);
    if (convolution->bias.defined()) convolution->bias.zero_();
  }
}

void truncated_normal_(torch::Tensor tensor, double std, at::Generator generator) {
  if (NoInitialValues::current() != nullptr) return;
  const torch::NoGradGuard no_grad;
  // Applies the inverse of the normal distribution function to a uniform number between the function's values at both limits.
  constexpr double kLimit = 2;
  const double bound = std::erf(kLimit / (std * std::numbers::sqrt2));
  // erfinv(1) is infinite. torch.nn.init does not exclude it, and so sets about one in 17 million weights to the limit, which for a small
  // `std` is many standard deviations away.
  constexpr double kLargest = 1 - 0x1p-24;
  tensor.uniform_(-bound, bound, std::move(generator)).clamp_(-kLargest, kLargest).erfinv_();
  tensor.mul_(std * std::numbers::sqrt2).clamp_(-kLimit, kLimit);
}

void uniform_(torch::Tensor tensor, double bound, at::Generator generator) {
  if (NoInitialValues::current() != nullptr) return;
  const torch::NoGradGuard no_grad;
  tensor.uniform_(-bound, bound, std::move(generator));
}

torch::Tensor activate(const torch::Tensor& x, Activation activation) {
  using Function = torch::Tensor (*)(const torch::Tensor&);
  // In the order of Activation.
  static constexpr std::array<Function, 8> kFunctions = {[](const torch::Tensor& same) { return same; },
                                                         at::relu,
                                                         at::relu6,
                                                         at::hardswish,
                                                         at::silu,
                                                         [](const torch::Tensor& input) { return at::gelu(input); },
                                                         at::sigmoid,
                                                         at::hardsigmoid};
  return kFunctions.at(static_cast<size_t>(activation))(x);
}

LayerNorm::LayerNorm(int64_t num_channels, double eps) : eps_(eps) {
  weight = register_parameter("weight", torch::ones({num_channels}));
  bias = register_parameter("bias", torch::zeros({num_channels}));
}

torch::Tensor LayerNorm::forward(const torch::Tensor& x) { return observed(*this, at::layer_norm(x, weight.sizes(), weight, bias, eps_)); }

torch::Tensor LayerNorm::forward_channels(const torch::Tensor& x) { return forward(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2}); }

SelfAttention::SelfAttention(int64_t num_features, int64_t num_heads, Names names) : num_heads_(num_heads) {
  if (names == Names::kTimm) {
    qkv = register_module("qkv", std::make_shared<Linear>(num_features, 3 * num_features));
  } else {
    in_proj_weight = register_parameter("in_proj_weight", torch::empty({3 * num_features, num_features}));
    in_proj_bias = register_parameter("in_proj_bias", torch::empty({3 * num_features}));
  }
  out_proj = register_module(names == Names::kTimm ? "proj" : "out_proj", std::make_shared<Linear>(num_features, num_features));
}

torch::Tensor SelfAttention::forward(const torch::Tensor& x) {
  const auto projected = qkv ? qkv->forward(x) : at::linear(x, used_weight(in_proj_weight), used_weight(in_proj_bias));
  // [N, positions, 3, heads, features of a head]. Unlike three selects, unbind has one backward operation, which writes the gradients of
  // all parts into one tensor.
  const auto parts = projected.unflatten(2, {3, num_heads_, x.size(2) / num_heads_}).unbind(2);
  const auto heads_first = [&](size_t part) { return parts[part].transpose(1, 2); };
  const auto y = at::scaled_dot_product_attention(heads_first(0), heads_first(1), heads_first(2));
  return observed(*this, out_proj->forward(y.transpose(1, 2).flatten(2)));
}

DropPath::DropPath(double p, at::Generator generator) : p_(p), generator_(std::move(generator)) {
  TORCH_CHECK(p >= 0.0 && p < 1.0, "the probability of dropping a path must be in [0, 1), got ", p);
}

torch::Tensor DropPath::forward(const torch::Tensor& x) {
  if (!is_training() || p_ == 0.0) return x;
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[0] = x.size(0);
  return observed(*this, x * at::empty(sizes, x.options()).bernoulli_(1.0 - p_, generator_).div_(1.0 - p_));
}

Dropout::Dropout(double p, at::Generator generator) : p_(p), generator_(std::move(generator)) {
  TORCH_CHECK(p >= 0.0 && p < 1.0, "dropout probability must be in [0, 1), got ", p);
}

torch::Tensor Dropout::forward(const torch::Tensor& x) {
  if (!is_training() || p_ == 0.0) return x;
  // at::dropout does not accept a generator; this computes the same.
  const torch::Tensor mask = at::empty_like(x).bernoulli_(1.0 - p_, generator_).div_(1.0 - p_);
  return observed(*this, x * mask);
}

torch::Tensor observed(const torch::nn::Module& layer, torch::Tensor output) {
  if (const auto* observer = LayerObserver::current()) observer->see_(layer, output);
  return output;
}

}  // namespace trainer::nn
