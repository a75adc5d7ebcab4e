// MobileNetV2 (Sandler et al. 2018) and V3 (Howard et al. 2019) with torchvision's names, shapes and initial values
// (torchvision/models/mobilenetv2.py and mobilenetv3.py).

#include <array>
#include <vector>

#include "models/blocks.h"
#include "models/registry.h"

namespace trainer::models {
namespace {

using nn::Activation;

using MobileNetOptions = DropoutOptions<0.2>;

class MobileNetV2 : public FeatureClassifier {
 public:
  MobileNetV2(const MobileNetOptions& options, const BuildContext& context) : FeatureClassifier(options) {
    struct Stage {
      int64_t expansion, channels, num_blocks, stride;
    };
    constexpr std::array<Stage, 7> kStages = {
        {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}}};
    constexpr int64_t kFirst = 32;
    constexpr int64_t kLast = 1280;
    const auto relu6 = Activation::kRelu6;
    features_->push_back(
        std::make_shared<ConvNorm>(options.num_channels(), kFirst, ConvNormOptions{.stride = 2, .activation = relu6}, context.norm));
    int64_t channels = kFirst;
    for (const auto& stage : kStages) {
      for (int64_t i = 0; i < stage.num_blocks; ++i) {
        const InvertedResidualOptions block{.in_channels = channels,
                                            .expanded_channels = channels * stage.expansion,
                                            .out_channels = stage.channels,
                                            .stride = i == 0 ? stage.stride : 1,
                                            .children = "conv",
                                            .lists_projection = true};
        features_->push_back(std::make_shared<InvertedResidual>(block, context));
        channels = stage.channels;
      }
    }
    features_->push_back(std::make_shared<ConvNorm>(channels, kLast, ConvNormOptions{.kernel_size = 1, .activation = relu6}, context.norm));
    register_module("features", features_);
    classifier_ =
        register_module("classifier", torch::nn::Sequential(std::make_shared<nn::Dropout>(options.dropout, context.dropout_generator),
                                                            std::make_shared<nn::Linear>(kLast, options.num_outputs())));
    nn::init_convolutions_(*this, context.init_generator);
    init_linear_layers(*this, context.init_generator);
  }
};

struct V3Block {
  int64_t kernel_size, expanded, channels;
  bool squeezes;
  Activation activation;
  int64_t stride;
};

class MobileNetV3 : public FeatureClassifier {
 public:
  MobileNetV3(const std::vector<V3Block>& blocks, int64_t hidden, const MobileNetOptions& options, const BuildContext& context)
      : FeatureClassifier(options) {
    constexpr nn::BatchNormOptions kNorm{.eps = 0.001, .momentum = 0.01};
    constexpr int64_t kFirst = 16;
    const auto hardswish = Activation::kHardswish;
    const ConvNormOptions first{.stride = 2, .activation = hardswish, .norm = kNorm};
    features_->push_back(std::make_shared<ConvNorm>(options.num_channels(), kFirst, first, context.norm));
    int64_t channels = kFirst;
    for (const auto& block : blocks) {
      const InvertedResidualOptions layer{
          .in_channels = channels,
          .expanded_channels = block.expanded,
          .out_channels = block.channels,
          .kernel_size = block.kernel_size,
          .stride = block.stride,
          .squeezed_channels = block.squeezes ? make_divisible(static_cast<double>(block.expanded / 4), 8) : 0,
          .activation = block.activation,
          .scale_activation = Activation::kHardsigmoid,
          .norm = kNorm};
      features_->push_back(std::make_shared<InvertedResidual>(layer, context));
      channels = block.channels;
    }
    const ConvNormOptions last{.kernel_size = 1, .activation = hardswish, .norm = kNorm};
    features_->push_back(std::make_shared<ConvNorm>(channels, 6 * channels, last, context.norm));
    register_module("features", features_);
    classifier_ =
        register_module("classifier", torch::nn::Sequential(std::make_shared<nn::Linear>(6 * channels, hidden),
                                                            std::make_shared<ActivationLayer>(hardswish),
                                                            std::make_shared<nn::Dropout>(options.dropout, context.dropout_generator),
                                                            std::make_shared<nn::Linear>(hidden, options.num_outputs())));
    nn::init_convolutions_(*this, context.init_generator);
    init_linear_layers(*this, context.init_generator);
  }
};

struct InvertedResidualLayerOptions : BlockOptions {
  int64_t expansion = 6;
  int64_t kernel_size = 3;
  bool squeeze_excite = false;
  Activation activation = Activation::kRelu6;
  double drop_path = 0;

  void describe(KeyTable& keys) {
    BlockOptions::describe(keys);
    describe_expansion(keys, expansion);
    describe_kernel(keys, kernel_size);
    keys.add("squeeze_excite", squeeze_excite, {.doc = "Whether the channels are scaled by squeeze-and-excitation, as in MobileNetV3."});
    keys.add_choice("activation", activation, activation_choices(), {.doc = "Activation after the first two normalisations."});
    describe_drop_path(keys, drop_path, kDropPathOfLayer);
  }
};

}  // namespace

void add_mobilenet(LayerRegistry& registry) {
  registry.add<InvertedResidualLayerOptions>(
      "inverted_residual", "The block of MobileNetV2 and V3.", [](const auto& options, const LayerContext& context) {
        const auto expanded = require_image(context)[0] * options.expansion;
        const auto squeezed = options.squeeze_excite ? make_divisible(static_cast<double>(expanded) / 4, 8) : 0;
        return make_inverted_residual({.in_channels = context.input_shape[0],
                                       .expanded_channels = expanded,
                                       .out_channels = options.channels,
                                       .kernel_size = options.kernel_size,
                                       .stride = options.stride,
                                       .squeezed_channels = squeezed,
                                       .activation = options.activation,
                                       .scale_activation = Activation::kHardsigmoid,
                                       .drop_path = options.drop_path},
                                      context);
      });
}

void add_mobilenet(ModelRegistry& registry) {
  add_model<MobileNetV2, MobileNetOptions>(registry, "mobilenet_v2", "torchvision's mobilenet_v2, 3.5 million parameters.");
  const auto relu = Activation::kRelu;
  const auto hardswish = Activation::kHardswish;
  const auto add = [&registry](const char* name, const char* doc, int64_t hidden, const std::vector<V3Block>& blocks) {
    add_model<MobileNetV3, MobileNetOptions>(registry, name, doc, blocks, hidden);
  };
  add("mobilenet_v3_small", "torchvision's mobilenet_v3_small, 2.5 million parameters.", 1024,
      {{3, 16, 16, true, relu, 2},
       {3, 72, 24, false, relu, 2},
       {3, 88, 24, false, relu, 1},
       {5, 96, 40, true, hardswish, 2},
       {5, 240, 40, true, hardswish, 1},
       {5, 240, 40, true, hardswish, 1},
       {5, 120, 48, true, hardswish, 1},
       {5, 144, 48, true, hardswish, 1},
       {5, 288, 96, true, hardswish, 2},
       {5, 576, 96, true, hardswish, 1},
       {5, 576, 96, true, hardswish, 1}});
  add("mobilenet_v3_large", "torchvision's mobilenet_v3_large, 5.5 million parameters.", 1280,
      {{3, 16, 16, false, relu, 1},
       {3, 64, 24, false, relu, 2},
       {3, 72, 24, false, relu, 1},
       {5, 72, 40, true, relu, 2},
       {5, 120, 40, true, relu, 1},
       {5, 120, 40, true, relu, 1},
       {3, 240, 80, false, hardswish, 2},
       {3, 200, 80, false, hardswish, 1},
       {3, 184, 80, false, hardswish, 1},
       {3, 184, 80, false, hardswish, 1},
       {3, 480, 112, true, hardswish, 1},
       {3, 672, 112, true, hardswish, 1},
       {5, 672, 160, true, hardswish, 2},
       {5, 960, 160, true, hardswish, 1},
       {5, 960, 160, true, hardswish, 1}});
}

}  // namespace trainer::models
