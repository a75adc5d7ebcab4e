// MobileNetV2 (Sandler et al. 2018) and V3 (Howard et al. 2019) with torchvision's names, shapes and initial values
// (torchvision/models/mobilenetv2.py and mobilenetv3.py).

#include <array>
#include <vector>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

using nn::Activation;

using MobileNetOptions = DropoutOptions<0.2>;

struct MobileNetDesign {
  int64_t first_channels;
  std::vector<InvertedResidualOptions> blocks;  // their in_channels are set by MobileNet
  int64_t last_channels;
  int64_t hidden;  // of a linear layer in the classifier; 0: none
  Activation activation;
  nn::BatchNormOptions norm = {};
};

class MobileNet : public FeatureClassifier {
 public:
  MobileNet(const MobileNetDesign& design, const MobileNetOptions& options, const BuildContext& context) : FeatureClassifier(options) {
    const ConvNormOptions first{.stride = 2, .activation = design.activation, .norm = design.norm};
    features_->push_back(std::make_shared<ConvNorm>(options.num_channels(), design.first_channels, first, context.norm));
    int64_t channels = design.first_channels;
    for (auto block : design.blocks) {
      block.in_channels = channels;
      features_->push_back(std::make_shared<InvertedResidual>(block, context));
      channels = block.out_channels;
    }
    const ConvNormOptions last{.kernel_size = 1, .activation = design.activation, .norm = design.norm};
    features_->push_back(std::make_shared<ConvNorm>(channels, design.last_channels, last, context.norm));
    register_module("features", features_);
    if (design.hidden > 0) {
      classifier_->push_back(std::make_shared<nn::Linear>(design.last_channels, design.hidden));
      classifier_->push_back(std::make_shared<ActivationLayer>(design.activation));
    }
    classifier_->push_back(std::make_shared<nn::Dropout>(options.dropout, context.dropout_generator));
    classifier_->push_back(std::make_shared<nn::Linear>(design.hidden > 0 ? design.hidden : design.last_channels, options.num_outputs()));
    register_module("classifier", classifier_);
    nn::init_convolutions_(*this, context.init_generator);
    init_linear_layers(*this, context.init_generator);
  }
};

MobileNetDesign mobilenet_v2() {
  struct Stage {
    int64_t expansion, channels, num_blocks, stride;
  };
  constexpr std::array<Stage, 7> kStages = {
      {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}}};
  MobileNetDesign design{.first_channels = 32, .blocks = {}, .last_channels = 1280, .hidden = 0, .activation = Activation::kRelu6};
  int64_t channels = design.first_channels;
  for (const auto& stage : kStages) {
    for (int64_t i = 0; i < stage.num_blocks; ++i) {
      design.blocks.push_back({.expanded_channels = channels * stage.expansion,
                               .out_channels = stage.channels,
                               .stride = i == 0 ? stage.stride : 1,
                               .children = "conv",
                               .lists_projection = true});
      channels = stage.channels;
    }
  }
  return design;
}

struct V3Block {
  int64_t kernel_size, expanded, channels;
  bool squeezes;
  Activation activation;
  int64_t stride;
};

MobileNetDesign mobilenet_v3(int64_t hidden, const std::vector<V3Block>& blocks) {
  MobileNetDesign design{.first_channels = 16,
                         .blocks = {},
                         .last_channels = 6 * blocks.back().channels,
                         .hidden = hidden,
                         .activation = Activation::kHardswish,
                         .norm = {.eps = 0.001, .momentum = 0.01}};
  for (const auto& block : blocks) {
    design.blocks.push_back({.expanded_channels = block.expanded,
                             .out_channels = block.channels,
                             .kernel_size = block.kernel_size,
                             .stride = block.stride,
                             .squeezed_channels = block.squeezes ? make_divisible(static_cast<double>(block.expanded / 4), 8) : 0,
                             .activation = block.activation,
                             .scale_activation = Activation::kHardsigmoid,
                             .norm = design.norm});
  }
  return design;
}

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
  add_model<MobileNet, MobileNetOptions>(registry, "mobilenet_v2", "torchvision's mobilenet_v2, 3.5 million parameters.", mobilenet_v2());
  const auto relu = Activation::kRelu;
  const auto hardswish = Activation::kHardswish;
  const auto add = [&registry](const char* name, const char* doc, int64_t hidden, const std::vector<V3Block>& blocks) {
    add_model<MobileNet, MobileNetOptions>(registry, name, doc, mobilenet_v3(hidden, blocks));
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
