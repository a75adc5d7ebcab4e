#include "models/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace trainer::models {

int64_t make_divisible(double value, int64_t divisor) {
  const auto rounded = static_cast<int64_t>(value + static_cast<double>(divisor) / 2) / divisor * divisor;
  const auto result = std::max(divisor, rounded);
  return static_cast<double>(result) < 0.9 * value ? result + divisor : result;
}

ConvNorm::ConvNorm(int64_t in_channels, int64_t out_channels, const ConvNormOptions& options, const nn::NormFactory& norm)
    : activation_(options.activation) {
  const nn::Conv2dOptions of_convolution{.stride = options.stride, .padding = (options.kernel_size - 1) / 2, .groups = options.groups};
  convolution_ = register_module("0", std::make_shared<nn::Conv2d>(in_channels, out_channels, options.kernel_size, of_convolution));
  norm_ = register_module("1", norm(out_channels, options.norm));
}

torch::Tensor ConvNorm::forward(const torch::Tensor& x) { return layers().forward(x); }

InvertedResidual::InvertedResidual(const InvertedResidualOptions& options, const BuildContext& context)
    : is_residual_(options.stride == 1 && options.in_channels == options.out_channels),
      expands_(!options.is_fused && options.expanded_channels != options.in_channels),
      lists_projection_(options.lists_projection),
      drop_path_(std::make_shared<nn::DropPath>(options.drop_path, context.dropout_generator)) {
  const auto add = [&](int64_t from, int64_t to, int64_t kernel_size, int64_t stride, int64_t groups, nn::Activation activation) {
    const ConvNormOptions layer{kernel_size, stride, groups, activation, options.norm};
    layers_->push_back(std::make_shared<ConvNorm>(from, to, layer, context.norm));
  };
  const auto expanded = options.expanded_channels;
  const bool expands = expanded != options.in_channels;
  if (options.is_fused) {
    add(options.in_channels, expands ? expanded : options.out_channels, options.kernel_size, options.stride, 1, options.activation);
  } else {
    if (expands) add(options.in_channels, expanded, 1, 1, 1, options.activation);
    add(expanded, expanded, options.kernel_size, options.stride, expanded, options.activation);
  }
  if (options.squeezed_channels > 0) {
    layers_->push_back(
        std::make_shared<nn::SqueezeExcitation>(expanded, options.squeezed_channels, options.squeeze_activation, options.scale_activation));
  }
  if (options.lists_projection) {
    layers_->push_back(nn::conv1x1(expanded, options.out_channels));
    layers_->push_back(context.norm(options.out_channels, options.norm));
  } else if (expands || !options.is_fused) {
    add(expanded, options.out_channels, 1, 1, 1, nn::Activation::kNone);
  }
  register_module(options.children, layers_);
  register_module("stochastic_depth", drop_path_);
}

torch::Tensor InvertedResidual::forward(const torch::Tensor& x) {
  auto layer = layers_->begin();
  auto y = x;
  if (expands_) {
    y = nn::convolve_normalise_twice(layer[0].get<ConvNorm>().layers(), layer[1].get<ConvNorm>().layers(), x);
    layer += 2;
  }
  const auto last = layers_->end() - (lists_projection_ ? 2 : 1);
  for (; layer != last; ++layer) y = layer->forward(y);
  const auto projection = lists_projection_ ? nn::NormalisedConvolution{last[0].get<nn::Conv2d>(), last[1].get<nn::BatchNorm2d>()}
                                            : last[0].get<ConvNorm>().layers();
  if (is_residual_ && !is_training() && projection.activation == nn::Activation::kNone) {
    return nn::convolve_normalise(projection.convolution, projection.norm, y, nn::Activation::kNone, x);
  }
  y = projection.forward(y);
  return is_residual_ ? drop_path_->forward(y) + x : y;
}

void LayerChain::add(const std::string& name, torch::nn::AnyModule layer, bool has_maps) {
  register_module(name, layer.ptr());
  layers_.push_back(std::move(layer));
  if (has_maps) num_to_maps_ = layers_.size();
}

std::optional<nn::Activation> LayerChain::activation_of_norm(size_t i) const {
  if (!is<nn::BatchNorm2d>(i)) return std::nullopt;
  return is<ActivationLayer>(i + 1) ? layers_[i + 1].get<ActivationLayer>().activation() : nn::Activation::kNone;
}

std::optional<nn::NormalisedConvolution> LayerChain::normalised_convolution(size_t i) {
  const auto activation = activation_of_norm(i + 1);
  if (!activation || !is<nn::Conv2d>(i)) return std::nullopt;
  return nn::NormalisedConvolution{layers_[i].get<nn::Conv2d>(), layers_[i + 1].get<nn::BatchNorm2d>(), *activation};
}

torch::Tensor LayerChain::run(torch::Tensor x, size_t begin, size_t end) {
  const auto after_norm = [&](size_t i) { return is<ActivationLayer>(i + 1) ? i + 2 : i + 1; };
  for (size_t i = begin; i < end;) {
    if (const auto activation = activation_of_norm(i)) {
      x = layers_[i].get<nn::BatchNorm2d>().forward_activated(x, *activation);
      i = after_norm(i);
    } else if (const auto first = normalised_convolution(i)) {
      i = after_norm(i + 1);
      const auto second = i < end ? normalised_convolution(i) : std::nullopt;
      x = second ? nn::convolve_normalise_twice(*first, *second, x) : first->forward(x);
      if (second) i = after_norm(i + 1);
    } else {
      x = layers_[i++].forward(x);
    }
  }
  return x;
}

size_t LayerChain::head_begin() const {
  size_t begin = layers_.size();
  while (begin > 0 && layers_[begin - 1].ptr()->parameters().empty()) --begin;
  if (begin > 0) --begin;
  if (begin > 0 && activation_of_norm(begin) && is<nn::Conv2d>(begin - 1)) --begin;
  while (begin > 0 && is<nn::Dropout>(begin - 1)) --begin;
  return begin;
}

void register_layers(torch::nn::Module& parent, const LayerChain& chain) {
  for (const auto& layer : chain.named_children()) parent.register_module(layer.key(), layer.value());
}

void init_linear_layers(const torch::nn::Module& network, const at::Generator& generator) {
  for (auto* linear : nn::layers_of<nn::Linear>(network)) {
    nn::normal_(linear->weight, 0, 0.01, generator);
    torch::nn::init::zeros_(linear->bias);
  }
}

torch::Tensor average_channels(const torch::Tensor& x) { return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1); }

const std::vector<int64_t>& require_image(const LayerContext& context) {
  if (context.input_shape.size() != 3) {
    throw UsageError(fmt::format("needs an image, but its input has {} features; put this layer before flatten and global_avg_pool",
                                 context.input_shape[0]));
  }
  return context.input_shape;
}

std::vector<int64_t> slide(const LayerContext& context, int64_t channels, int64_t kernel_size, int64_t stride, int64_t padding) {
  const auto& shape = require_image(context);
  std::vector<int64_t> output = {channels};
  for (const auto size : {shape[1], shape[2]}) {
    if (size + 2 * padding < kernel_size) {
      throw UsageError(
          fmt::format("its window of {0}x{0} pixels is larger than its input of {1}x{2} with padding {3}; remove a layer that makes the "
                      "image smaller, or choose a smaller window",
                      kernel_size, shape[1], shape[2], padding));
    }
    output.push_back((size + 2 * padding - kernel_size) / stride + 1);
  }
  return output;
}

Layer make_inverted_residual(const InvertedResidualOptions& options, const LayerContext& context) {
  if (options.kernel_size % 2 == 0) throw OptionError("kernel_size", fmt::format("{} is even; choose an odd number", options.kernel_size));
  return {torch::nn::AnyModule(std::make_shared<InvertedResidual>(options, context.build)),
          slide(context, options.out_channels, options.kernel_size, options.stride, (options.kernel_size - 1) / 2)};
}

const Choices<nn::Activation>& activation_choices() {
  using enum nn::Activation;
  static const Choices<nn::Activation> choices = {
      {"none", kNone}, {"relu", kRelu},           {"relu6", kRelu6},     {"silu", kSilu},
      {"gelu", kGelu}, {"hardswish", kHardswish}, {"sigmoid", kSigmoid}, {"hardsigmoid", kHardsigmoid}};
  return choices;
}

}  // namespace trainer::models
