// The simple layers of an experiment file's list, most of which correspond to a layer of PyTorch.

#include <fmt/format.h>

#include <functional>
#include <map>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

// A layer without parameters.
class FunctionLayer : public torch::nn::Module {
 public:
  explicit FunctionLayer(std::function<torch::Tensor(const torch::Tensor&)> function) : function_(std::move(function)) {}
  torch::Tensor forward(const torch::Tensor& x) { return function_(x); }

 private:
  std::function<torch::Tensor(const torch::Tensor&)> function_;
};

template <class Function>
torch::nn::AnyModule function_layer(Function function) {
  return torch::nn::AnyModule(std::make_shared<FunctionLayer>(std::move(function)));
}

void check_groups(int64_t in_channels, int64_t channels, int64_t groups) {
  for (const auto count : {in_channels, channels}) {
    if (count % groups == 0) continue;
    throw OptionError("groups", fmt::format("{} channels cannot be divided into {} groups; choose a divisor", count, groups));
  }
}

Layer make_convolution(const ConvolutionOptions& options, int64_t channels, int64_t groups, bool bias, const LayerContext& context) {
  const auto in_channels = require_image(context)[0];
  check_groups(in_channels, channels, groups);
  const auto padding = options.padding.value.value_or((options.kernel_size - 1) / 2);
  const nn::Conv2dOptions layer{.stride = options.stride, .padding = padding, .groups = groups, .bias = bias};
  return {torch::nn::AnyModule(std::make_shared<nn::Conv2d>(in_channels, channels, options.kernel_size, layer)),
          slide(context, channels, options.kernel_size, options.stride, padding)};
}

struct ConvOptions : ConvolutionOptions {
  int64_t channels = 0;
  int64_t groups = 1;
  bool bias = true;

  void describe(KeyTable& keys) {
    describe_channels(keys, channels);
    ConvolutionOptions::describe(keys);
    describe_groups(keys, groups);
    keys.add("bias", bias, {.doc = "Whether the layer learns a bias; useless before batch_norm."});
  }
};

struct DepthwiseOptions : ConvolutionOptions {
  bool bias = true;

  void describe(KeyTable& keys) {
    ConvolutionOptions::describe(keys);
    keys.add("bias", bias, {.doc = "Whether the layer learns a bias; useless before batch_norm."});
  }
};

struct ConvNormLayerOptions : LayerOptions {
  int64_t channels = 0;
  int64_t kernel_size = 3;
  int64_t stride = 1;
  int64_t groups = 1;
  nn::Activation activation = nn::Activation::kRelu;

  void describe(KeyTable& keys) {
    describe_channels(keys, channels);
    describe_kernel(keys, kernel_size);
    describe_stride(keys, stride);
    describe_groups(keys, groups);
    keys.add_choice("activation", activation, activation_choices(), {.doc = "Activation after the normalisation."});
    LayerOptions::describe(keys);
  }
};

Layer make_conv_norm(const ConvNormLayerOptions& options, const LayerContext& context) {
  const auto in_channels = require_image(context)[0];
  check_groups(in_channels, options.channels, options.groups);
  const ConvNormOptions layer{
      .kernel_size = options.kernel_size, .stride = options.stride, .groups = options.groups, .activation = options.activation};
  return {torch::nn::AnyModule(std::make_shared<ConvNorm>(in_channels, options.channels, layer, context.build.norm)),
          slide(context, options.channels, options.kernel_size, options.stride, (options.kernel_size - 1) / 2)};
}

struct BatchNormLayerOptions : LayerOptions {
  double eps = 1e-5;
  double momentum = 0.1;

  void describe(KeyTable& keys) {
    keys.add("eps", eps, {.min = 0, .min_excluded = true, .doc = "Added to the variance."});
    keys.add("momentum", momentum, {.min = 0, .max = 1, .doc = "Weight of a batch in the running statistics."});
    LayerOptions::describe(keys);
  }
};

struct LayerNormOptions : LayerOptions {
  double eps = 1e-5;

  void describe(KeyTable& keys) {
    keys.add("eps", eps, {.min = 0, .min_excluded = true, .doc = "Added to the variance."});
    LayerOptions::describe(keys);
  }
};

struct PoolOptions : LayerOptions {
  int64_t kernel_size = 2;
  Auto<int64_t> stride = {};
  int64_t padding = 0;

  void describe(KeyTable& keys) {
    describe_kernel(keys, kernel_size);
    keys.add("stride", stride, {.min = 1, .max = 1024, .unit = "pixels", .doc = "Distance between two windows; auto: kernel_size."});
    keys.add("padding", padding, {.min = 0, .max = 1024, .unit = "pixels", .doc = "Padding on each side."});
    keys.refuse("padding", [this] { return 2 * padding > kernel_size ? "is more than half of kernel_size; choose a smaller value" : ""; });
    LayerOptions::describe(keys);
  }
};

template <class Pool>
void add_pool(LayerRegistry& registry, const char* name, const char* doc, Pool pool) {
  registry.add<PoolOptions>(name, doc, [pool](const PoolOptions& options, const LayerContext& context) -> Layer {
    const auto size = options.kernel_size;
    const auto stride = options.stride.value.value_or(size);
    const auto padding = options.padding;
    return {function_layer([=](const torch::Tensor& x) { return pool(x, size, stride, padding); }),
            slide(context, require_image(context)[0], size, stride, padding)};
  });
}

struct LinearOptions : LayerOptions {
  Auto<int64_t> features = {};
  bool bias = true;

  void describe(KeyTable& keys) {
    keys.add("features", features,
             {.min = 1, .max = kMostChannels, .doc = "Number of outputs; auto: that of the network, one for each class or number."});
    keys.add("bias", bias, {.doc = "Whether the layer learns a bias."});
    LayerOptions::describe(keys);
  }
};

struct DropoutLayerOptions : LayerOptions {
  double p = 0.5;

  void describe(KeyTable& keys) {
    keys.add("p", p, {.min = 0.0, .max = 1.0, .max_excluded = true, .doc = "Probability of dropping a value."});
    LayerOptions::describe(keys);
  }
};

struct SqueezeOptions : LayerOptions {
  int64_t reduction = 16;

  void describe(KeyTable& keys) {
    keys.add("reduction", reduction,
             {.min = 1, .max = kMostChannels, .doc = "Ratio of the input channels to the channels between the two convolutions."});
    LayerOptions::describe(keys);
  }
};

}  // namespace

void add_layers(LayerRegistry& registry) {
  registry.add<ConvOptions>("conv", "Convolution.", [](const auto& options, const auto& context) {
    return make_convolution(options, options.channels, options.groups, options.bias, context);
  });
  registry.add<DepthwiseOptions>("depthwise_conv", "Convolution of each channel separately.", [](const auto& options, const auto& context) {
    const auto channels = require_image(context)[0];
    return make_convolution(options, channels, channels, options.bias, context);
  });
  registry.add<ConvNormLayerOptions>("conv_norm", "Convolution without bias, batch normalisation and an activation.", make_conv_norm);
  registry.add<BatchNormLayerOptions>(
      "batch_norm", "Batch normalisation of each channel.", [](const auto& options, const LayerContext& context) -> Layer {
        const auto channels = require_image(context)[0];
        return {torch::nn::AnyModule(context.build.norm(channels, {.eps = options.eps, .momentum = options.momentum})),
                context.input_shape};
      });
  registry.add<LayerNormOptions>(
      "layer_norm", "Normalisation over the channels at each pixel, or over the features.",
      [](const auto& options, const LayerContext& context) -> Layer {
        const auto channels = context.input_shape[0];
        if (context.input_shape.size() == 1)
          return {torch::nn::AnyModule(std::make_shared<nn::LayerNorm>(channels, options.eps)), context.input_shape};
        return {torch::nn::AnyModule(std::make_shared<ChannelNorm>(channels, options.eps)), context.input_shape};
      });
  const std::map<nn::Activation, const char*> docs = {{nn::Activation::kRelu, "max(x, 0)."},
                                                      {nn::Activation::kRelu6, "x clamped to [0, 6]."},
                                                      {nn::Activation::kSilu, "x * sigmoid(x)."},
                                                      {nn::Activation::kGelu, "x * Φ(x), with the normal distribution function Φ."},
                                                      {nn::Activation::kHardswish, "x * hardsigmoid(x)."},
                                                      {nn::Activation::kSigmoid, "1 / (1 + exp(-x))."},
                                                      {nn::Activation::kHardsigmoid, "min(max(x / 6 + 1/2, 0), 1)."}};
  for (const auto& [name, activation] : activation_choices()) {
    if (activation == nn::Activation::kNone) continue;
    registry.add<LayerOptions>(name, docs.at(activation), [activation](const auto&, const LayerContext& context) -> Layer {
      return {torch::nn::AnyModule(std::make_shared<ActivationLayer>(activation)), context.input_shape};
    });
  }
  add_pool(registry, "max_pool", "Largest value in each window.",
           [](const torch::Tensor& x, int64_t size, int64_t stride, int64_t padding) { return at::max_pool2d(x, size, stride, padding); });
  add_pool(registry, "avg_pool", "Mean of each window, including the padding.",
           [](const torch::Tensor& x, int64_t size, int64_t stride, int64_t padding) { return at::avg_pool2d(x, size, stride, padding); });
  registry.add<LayerOptions>("global_avg_pool", "Mean of each channel; turns an image into features.",
                             [](const auto&, const LayerContext& context) -> Layer {
                               return {function_layer(average_channels), {require_image(context)[0]}};
                             });
  registry.add<LayerOptions>("flatten", "Turns all values of an image into features; all images must then have the same size.",
                             [](const auto&, const LayerContext& context) -> Layer {
                               int64_t product = 1;
                               for (const auto size : context.input_shape) product *= size;
                               return {function_layer([](const torch::Tensor& x) { return x.flatten(1); }), {product}};
                             });
  registry.add<LinearOptions>("linear", "Linear layer.", [](const auto& options, const LayerContext& context) -> Layer {
    if (context.input_shape.size() != 1) {
      throw UsageError(fmt::format("needs features, but its input is an image of {}; put flatten or global_avg_pool before it",
                                   fmt::join(context.input_shape, "x")));
    }
    const auto features = options.features.value.value_or(context.num_outputs);
    return {torch::nn::AnyModule(std::make_shared<nn::Linear>(context.input_shape[0], features, options.bias)), {features}};
  });
  registry.add<DropoutLayerOptions>(
      "dropout", "Sets random values to 0 in training.", [](const auto& options, const LayerContext& context) -> Layer {
        return {torch::nn::AnyModule(std::make_shared<nn::Dropout>(options.p, context.build.dropout_generator)), context.input_shape};
      });
  registry.add<SqueezeOptions>("squeeze_excite", "Scales each channel by a factor computed from the means of all channels.",
                               [](const auto& options, const LayerContext& context) -> Layer {
                                 const auto channels = require_image(context)[0];
                                 const auto squeezed = std::max<int64_t>(1, channels / options.reduction);
                                 return {torch::nn::AnyModule(std::make_shared<nn::SqueezeExcitation>(
                                             channels, squeezed, nn::Activation::kRelu, nn::Activation::kSigmoid)),
                                         context.input_shape};
                               });
}

}  // namespace trainer::models
