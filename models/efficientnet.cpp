// EfficientNet (Tan and Le 2019) and EfficientNetV2 (2021) with torchvision's names, shapes and initial values
// (torchvision/models/efficientnet.py).

#include <cmath>
#include <vector>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

struct EfficientNetStage {
  int64_t expansion, kernel_size, stride, channels, num_blocks;
  bool is_fused = false;
};

struct EfficientNetDesign {
  int64_t first_channels;
  std::vector<EfficientNetStage> stages;
  int64_t last_channels;
  nn::BatchNormOptions norm = {};
};

// The stages of EfficientNet-B0, scaled.
EfficientNetDesign scaled_b0(double width, double depth) {
  const auto channels = [width](int64_t of_b0) { return make_divisible(static_cast<double>(of_b0) * width, 8); };
  EfficientNetDesign design{
      .first_channels = channels(32),
      .stages =
          {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2}, {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}},
      .last_channels = 4 * channels(320)};
  for (auto& stage : design.stages) {
    stage.channels = channels(stage.channels);
    stage.num_blocks = static_cast<int64_t>(std::ceil(static_cast<double>(stage.num_blocks) * depth));
  }
  return design;
}

class EfficientNet : public FeatureClassifier {
 public:
  template <class Options>
  EfficientNet(const EfficientNetDesign& design, const Options& options, const BuildContext& context) : FeatureClassifier(options) {
    const auto silu = nn::Activation::kSilu;
    const ConvNormOptions first{.stride = 2, .activation = silu, .norm = design.norm};
    features_->push_back(std::make_shared<ConvNorm>(options.num_channels(), design.first_channels, first, context.norm));
    int64_t num_blocks = 0;
    for (const auto& stage : design.stages) num_blocks += stage.num_blocks;
    int64_t channels = design.first_channels;
    int64_t number = 0;
    for (const auto& stage : design.stages) {
      const auto blocks = std::make_shared<nn::LayerList>();
      for (int64_t i = 0; i < stage.num_blocks; ++i, ++number) {
        const InvertedResidualOptions block{.in_channels = channels,
                                            .expanded_channels = make_divisible(static_cast<double>(channels * stage.expansion), 8),
                                            .out_channels = stage.channels,
                                            .kernel_size = stage.kernel_size,
                                            .stride = i == 0 ? stage.stride : 1,
                                            .squeezed_channels = stage.is_fused ? 0 : std::max<int64_t>(1, channels / 4),
                                            .activation = silu,
                                            .squeeze_activation = silu,
                                            .norm = design.norm,
                                            .is_fused = stage.is_fused,
                                            .drop_path = options.drop_path * static_cast<double>(number) / static_cast<double>(num_blocks)};
        blocks->add(std::make_shared<InvertedResidual>(block, context));
        channels = stage.channels;
      }
      features_->push_back(blocks);
    }
    const ConvNormOptions last{.kernel_size = 1, .activation = silu, .norm = design.norm};
    features_->push_back(std::make_shared<ConvNorm>(channels, design.last_channels, last, context.norm));
    register_module("features", features_);
    const auto linear = std::make_shared<nn::Linear>(design.last_channels, options.num_outputs());
    classifier_ = register_module("classifier",
                                  torch::nn::Sequential(std::make_shared<nn::Dropout>(options.dropout, context.dropout_generator), linear));
    nn::init_convolutions_(*this, context.init_generator);
    nn::uniform_(linear->weight, 1 / std::sqrt(static_cast<double>(options.num_outputs())), context.init_generator);
    torch::nn::init::zeros_(linear->bias);
  }
};

struct MbConvOptions : BlockOptions {
  int64_t expansion = 6;
  int64_t kernel_size = 3;
  double drop_path = 0;

  void describe(KeyTable& keys) {
    BlockOptions::describe(keys);
    describe_expansion(keys, expansion);
    describe_kernel(keys, kernel_size);
    describe_drop_path(keys, drop_path, kDropPathOfLayer);
  }
};

}  // namespace

void add_efficientnet(LayerRegistry& registry) {
  registry.add<MbConvOptions>("mb_conv", "The block of EfficientNet.", [](const auto& options, const LayerContext& context) {
    const auto in_channels = require_image(context)[0];
    return make_inverted_residual({.in_channels = in_channels,
                                   .expanded_channels = in_channels * options.expansion,
                                   .out_channels = options.channels,
                                   .kernel_size = options.kernel_size,
                                   .stride = options.stride,
                                   .squeezed_channels = std::max<int64_t>(1, in_channels / 4),
                                   .activation = nn::Activation::kSilu,
                                   .squeeze_activation = nn::Activation::kSilu,
                                   .drop_path = options.drop_path},
                                  context);
  });
}

void add_efficientnet(ModelRegistry& registry) {
  const auto add = [&registry]<class Options>(const char* name, const char* doc, const EfficientNetDesign& design) {
    add_model<EfficientNet, Options>(registry, name, doc, design);
  };
  using Smaller = DropPathOptions<0.2, 0.2>;
  using Larger = DropPathOptions<0.3, 0.2>;
  add.operator()<Smaller>("efficientnet_b0", "torchvision's efficientnet_b0, 5.3 million parameters.", scaled_b0(1.0, 1.0));
  add.operator()<Smaller>("efficientnet_b1", "torchvision's efficientnet_b1, 7.8 million parameters.", scaled_b0(1.0, 1.1));
  add.operator()<Larger>("efficientnet_b2", "torchvision's efficientnet_b2, 9.1 million parameters.", scaled_b0(1.1, 1.2));
  add.operator()<Larger>("efficientnet_b3", "torchvision's efficientnet_b3, 12.2 million parameters.", scaled_b0(1.2, 1.4));
  add.operator()<Smaller>("efficientnet_v2_s", "torchvision's efficientnet_v2_s, 21.5 million parameters.",
                          {.first_channels = 24,
                           .stages = {{1, 3, 1, 24, 2, true},
                                      {4, 3, 2, 48, 4, true},
                                      {4, 3, 2, 64, 4, true},
                                      {4, 3, 2, 128, 6},
                                      {6, 3, 1, 160, 9},
                                      {6, 3, 2, 256, 15}},
                           .last_channels = 1280,
                           .norm = {.eps = 0.001}});
}

}  // namespace trainer::models
