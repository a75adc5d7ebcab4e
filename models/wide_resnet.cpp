// Wide residual networks for 32×32 images: Zagoruyko & Komodakis, "Wide Residual Networks" (2016), with pre-activation blocks and
// dropout between the convolutions of a block. WRN-28-10 is depth 28, width 10.

#include <fmt/format.h>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

struct WideResNetOptions : ImageClassifierOptions {
  int64_t depth = 28;
  int64_t width = 10;
  double dropout = 0.0;

  void describe(KeyTable& keys) {
    keys.add("depth", depth, {.min = 10, .unit = "layers", .doc = "Number of convolutions: 6n + 4 for n blocks per stage."});
    keys.add("width", width,
             {.min = 1, .doc = "Factor of the numbers of channels: the three stages have 16, 32 and 64 channels times this factor."});
    ImageClassifierOptions::describe(keys);
    keys.add("dropout", dropout,
             {.min = 0.0, .max = 1.0, .max_excluded = true, .doc = "Probability of dropping a value between a block's convolutions."});
    keys.refuse("depth", [this]() -> std::string {
      return (depth - 4) % 6 == 0
                 ? ""
                 : fmt::format("{} is not of the form 6n + 4; choose a depth of that form, for example 16, 22, 28 or 40", depth);
    });
  }
};

class WideBlock : public torch::nn::Module {
 public:
  WideBlock(int64_t in_channels, int64_t channels, int64_t stride, double dropout, const BuildContext& context) {
    bn1_ = register_module("bn1", context.norm(in_channels));
    conv1_ = register_module("conv1", nn::conv3x3(in_channels, channels, stride));
    bn2_ = register_module("bn2", context.norm(channels));
    dropout_ = register_module("dropout", std::make_shared<nn::Dropout>(dropout, context.dropout_generator));
    conv2_ = register_module("conv2", nn::conv3x3(channels, channels));
    if (in_channels != channels) shortcut_ = register_module("shortcut", nn::conv1x1(in_channels, channels, stride));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor activated = bn1_->forward_relu(x);
    const torch::Tensor y = nn::convolve_normalise_relu(*conv1_, *bn2_, activated);
    return conv2_->forward(dropout_->forward(y)).add_(shortcut_ ? shortcut_->forward(activated) : x);
  }

 private:
  nn::BatchNormPtr bn1_, bn2_;
  std::shared_ptr<nn::Conv2d> conv1_, conv2_, shortcut_;
  std::shared_ptr<nn::Dropout> dropout_;
};

class WideResNet : public FeatureMapModel {
 public:
  WideResNet(const WideResNetOptions& options, const BuildContext& context) : FeatureMapModel(options) {
    const int64_t channels = 16 * options.width;
    const auto stage = [&](int64_t in_channels, int64_t out_channels, int64_t stride) {
      return make_stage<WideBlock>((options.depth - 4) / 6, in_channels, out_channels, stride, options.dropout, context);
    };
    conv1_ = register_module("conv1", nn::conv3x3(options.num_channels(), 16));
    layer1_ = register_module("layer1", stage(16, channels, 1));
    layer2_ = register_module("layer2", stage(channels, 2 * channels, 2));
    layer3_ = register_module("layer3", stage(2 * channels, 4 * channels, 2));
    bn_ = register_module("bn", context.norm(4 * channels));
    fc_ = register_module("fc", std::make_shared<nn::Linear>(4 * channels, options.num_outputs()));
    nn::init_convolutions_(*this, context.init_generator);
    nn::default_uniform_(fc_->weight, fc_->bias, context.init_generator);
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override {
    return bn_->forward_relu(layer3_->forward(layer2_->forward(layer1_->forward(conv1_->forward(x)))));
  }
  torch::Tensor forward_head(const torch::Tensor& features) override { return fc_->forward(features); }

 private:
  std::shared_ptr<nn::Conv2d> conv1_;
  torch::nn::Sequential layer1_, layer2_, layer3_;
  nn::BatchNormPtr bn_;
  std::shared_ptr<nn::Linear> fc_;
};

}  // namespace

void add_wide_resnet(ModelRegistry& registry) {
  add_model<WideResNet, WideResNetOptions>(registry, "wide_resnet",
                                           "Wide residual network for 32×32 images; by default WRN-28-10, 36 million parameters.");
}

}  // namespace trainer::models
