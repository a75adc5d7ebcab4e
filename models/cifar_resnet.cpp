// The small residual networks for 32×32 images of He et al., "Deep Residual Learning for Image Recognition" (2015), section 4.2:
// 6n + 2 layers, 16, 32 and 64 channels, and shortcuts without weights (option A).

#include <fmt/format.h>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

class CifarBlock : public torch::nn::Module {
 public:
  CifarBlock(int64_t in_channels, int64_t channels, int64_t stride, const nn::NormFactory& norm)
      : stride_(stride), added_channels_(channels - in_channels) {
    conv1_ = register_module("conv1", nn::conv3x3(in_channels, channels, stride));
    bn1_ = register_module("bn1", norm(channels));
    conv2_ = register_module("conv2", nn::conv3x3(channels, channels));
    bn2_ = register_module("bn2", norm(channels));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = nn::convolve_normalise_relu(*conv1_, *bn1_, x);
    return nn::convolve_normalise_relu(*conv2_, *bn2_, y, shortcut(x));
  }

 private:
  // Option A: takes every stride_-th row and column of x, with zeros for the additional channels.
  torch::Tensor shortcut(const torch::Tensor& x) const {
    if (added_channels_ == 0 && stride_ == 1) return x;
    const torch::Tensor kept = x.slice(2, std::nullopt, std::nullopt, stride_).slice(3, std::nullopt, std::nullopt, stride_);
    return at::constant_pad_nd(kept, {0, 0, 0, 0, 0, added_channels_});
  }

  int64_t stride_;
  int64_t added_channels_;
  std::shared_ptr<nn::Conv2d> conv1_, conv2_;
  nn::BatchNormPtr bn1_, bn2_;
};

class CifarResNet : public FeatureMapModel {
 public:
  CifarResNet(int64_t blocks_per_stage, const ImageClassifierOptions& options, const BuildContext& context) : FeatureMapModel(options) {
    conv1_ = register_module("conv1", nn::conv3x3(options.num_channels(), 16));
    bn1_ = register_module("bn1", context.norm(16));
    layer1_ = register_module("layer1", make_stage<CifarBlock>(blocks_per_stage, 16, 16, 1, context.norm));
    layer2_ = register_module("layer2", make_stage<CifarBlock>(blocks_per_stage, 16, 32, 2, context.norm));
    layer3_ = register_module("layer3", make_stage<CifarBlock>(blocks_per_stage, 32, 64, 2, context.norm));
    fc_ = register_module("fc", std::make_shared<nn::Linear>(64, options.num_outputs()));
    nn::init_convolutions_(*this, context.init_generator);
    nn::default_uniform_(fc_->weight, fc_->bias, context.init_generator);
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override {
    return layer3_->forward(layer2_->forward(layer1_->forward(nn::convolve_normalise_relu(*conv1_, *bn1_, x))));
  }
  torch::Tensor forward_head(const torch::Tensor& features) override { return fc_->forward(features); }

 private:
  std::shared_ptr<nn::Conv2d> conv1_;
  nn::BatchNormPtr bn1_;
  torch::nn::Sequential layer1_, layer2_, layer3_;
  std::shared_ptr<nn::Linear> fc_;
};

}  // namespace

void add_cifar_resnet(LayerRegistry& registry) {
  registry.add<BlockOptions>(
      "cifar_block", "The block of resnet20; its shortcut has no weights.", [](const auto& options, const LayerContext& context) -> Layer {
        const auto in_channels = require_image(context)[0];
        if (options.channels < in_channels) {
          throw OptionError("channels", fmt::format("{0} are fewer than the {1} channels of the input; choose at least {1}",
                                                    options.channels, in_channels));
        }
        const auto block = std::make_shared<CifarBlock>(in_channels, options.channels, options.stride, context.build.norm);
        return {torch::nn::AnyModule(block), slide(context, options.channels, 3, options.stride, 1)};
      });
}

void add_cifar_resnet(ModelRegistry& registry) {
  const auto add = [&registry](const char* name, const char* doc, int64_t blocks_per_stage) {
    add_model<CifarResNet, ImageClassifierOptions>(registry, name, doc, blocks_per_stage);
  };
  add("resnet20", "Residual network for 32×32 images, 20 layers, 0.27 million parameters.", 3);
  add("resnet32", "Residual network for 32×32 images, 32 layers, 0.46 million parameters.", 5);
  add("resnet44", "Residual network for 32×32 images, 44 layers, 0.66 million parameters.", 7);
  add("resnet56", "Residual network for 32×32 images, 56 layers, 0.85 million parameters.", 9);
}

}  // namespace trainer::models
