// Residual networks with torchvision's names, shapes and initial values (torchvision/models/resnet.py). As there, the stride of a
// bottleneck is in the 3×3 convolution.

#include <fmt/format.h>

#include <array>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

enum class ResNetStem { kImagenet, kCifar };

struct ResNetOptions : ImageClassifierOptions {
  ResNetStem stem = ResNetStem::kImagenet;
  bool zero_init_last_norm = false;
  double dropout = 0.0;

  void describe(KeyTable& keys) {
    ImageClassifierOptions::describe(keys);
    keys.add_choice("stem", stem, {{"imagenet", ResNetStem::kImagenet}, {"cifar", ResNetStem::kCifar}},
                    {.doc = "First layers. imagenet: a 7×7 convolution and a max-pool, both with stride 2; cifar: a 3×3 convolution."});
    keys.add("zero_init_last_norm", zero_init_last_norm,
             {.doc = "Initialise the weight of each block's last normalisation with 0, so that the block is the identity at first."});
    keys.add("dropout", dropout,
             {.min = 0.0, .max = 1.0, .max_excluded = true, .doc = "Probability of dropping a feature before the last layer."});
  }
};

// The shortcut if the shape changes: a strided 1×1 convolution and a norm layer. Otherwise null.
std::shared_ptr<ConvNorm> make_downsample(int64_t in_channels, int64_t out_channels, int64_t stride, const nn::NormFactory& norm) {
  if (stride == 1 && in_channels == out_channels) return nullptr;
  const ConvNormOptions options{.kernel_size = 1, .stride = stride, .activation = nn::Activation::kNone};
  return std::make_shared<ConvNorm>(in_channels, out_channels, options, norm);
}

// The groups of a bottleneck's 3×3 convolution; `width` is the number of channels per group for `channels` = 64.
struct Grouping {
  int64_t groups = 1;
  int64_t width = 64;
};

class BasicBlock : public torch::nn::Module {
 public:
  static constexpr int64_t kExpansion = 1;

  BasicBlock(int64_t in_channels, int64_t channels, int64_t stride, const Grouping& /*grouping*/, const nn::NormFactory& norm)
      : downsample_(make_downsample(in_channels, channels, stride, norm)) {
    conv1_ = register_module("conv1", nn::conv3x3(in_channels, channels, stride));
    bn1_ = register_module("bn1", norm(channels));
    conv2_ = register_module("conv2", nn::conv3x3(channels, channels));
    bn2_ = register_module("bn2", norm(channels));
    if (downsample_) register_module("downsample", downsample_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = nn::convolve_normalise_relu(*conv1_, *bn1_, x);
    return nn::convolve_normalise_relu(*conv2_, *bn2_, y, downsample_ ? downsample_->forward(x) : x);
  }

  nn::BatchNorm2d& last_norm() { return *bn2_; }

 private:
  std::shared_ptr<nn::Conv2d> conv1_, conv2_;
  nn::BatchNormPtr bn1_, bn2_;
  std::shared_ptr<ConvNorm> downsample_;
};

class Bottleneck : public torch::nn::Module {
 public:
  static constexpr int64_t kExpansion = 4;

  Bottleneck(int64_t in_channels, int64_t channels, int64_t stride, const Grouping& grouping, const nn::NormFactory& norm)
      : downsample_(make_downsample(in_channels, channels, stride, norm)) {
    const int64_t width = channels / kExpansion * grouping.width / 64 * grouping.groups;
    conv1_ = register_module("conv1", nn::conv1x1(in_channels, width));
    bn1_ = register_module("bn1", norm(width));
    const nn::Conv2dOptions grouped{.stride = stride, .padding = 1, .groups = grouping.groups};
    conv2_ = register_module("conv2", std::make_shared<nn::Conv2d>(width, width, 3, grouped));
    bn2_ = register_module("bn2", norm(width));
    conv3_ = register_module("conv3", nn::conv1x1(width, channels));
    bn3_ = register_module("bn3", norm(channels));
    if (downsample_) register_module("downsample", downsample_);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = nn::convolve_normalise_relu(*conv1_, *bn1_, x);
    y = nn::convolve_normalise_relu(*conv2_, *bn2_, y);
    return nn::convolve_normalise_relu(*conv3_, *bn3_, y, downsample_ ? downsample_->forward(x) : x);
  }

  nn::BatchNorm2d& last_norm() { return *bn3_; }

 private:
  std::shared_ptr<nn::Conv2d> conv1_, conv2_, conv3_;
  nn::BatchNormPtr bn1_, bn2_, bn3_;
  std::shared_ptr<ConvNorm> downsample_;
};

using BlocksPerStage = std::array<int64_t, 4>;

template <class Block>
class ResNet : public FeatureMapModel {
 public:
  ResNet(const BlocksPerStage& blocks_per_stage, const Grouping& grouping, const ResNetOptions& options, const BuildContext& context)
      : FeatureMapModel(options), options_(options) {
    const auto stage = [&](size_t i, int64_t in_channels, int64_t channels) {
      return make_stage<Block>(blocks_per_stage[i], in_channels, channels, i == 0 ? 1 : 2, grouping, context.norm);
    };
    constexpr int64_t kWidth = 64 * Block::kExpansion;
    conv1_ = register_module("conv1", make_stem(options));
    bn1_ = register_module("bn1", context.norm(64));
    layer1_ = register_module("layer1", stage(0, 64, kWidth));
    layer2_ = register_module("layer2", stage(1, kWidth, 2 * kWidth));
    layer3_ = register_module("layer3", stage(2, 2 * kWidth, 4 * kWidth));
    layer4_ = register_module("layer4", stage(3, 4 * kWidth, 8 * kWidth));
    dropout_ = register_module("dropout", std::make_shared<nn::Dropout>(options.dropout, context.dropout_generator));
    fc_ = register_module("fc", std::make_shared<nn::Linear>(8 * kWidth, options.num_outputs()));
    nn::init_convolutions_(*this, context.init_generator);
    nn::default_uniform_(fc_->weight, fc_->bias, context.init_generator);
    if (!options.zero_init_last_norm) return;
    for (auto* block : nn::layers_of<Block>(*this)) torch::nn::init::zeros_(block->last_norm().weight);
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override {
    torch::Tensor y = nn::convolve_normalise_relu(*conv1_, *bn1_, x);
    if (options_.stem == ResNetStem::kImagenet) y = at::max_pool2d(y, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    return layer4_->forward(layer3_->forward(layer2_->forward(layer1_->forward(y))));
  }
  torch::Tensor forward_head(const torch::Tensor& features) override { return fc_->forward(dropout_->forward(features)); }

 private:
  static std::shared_ptr<nn::Conv2d> make_stem(const ResNetOptions& options) {
    if (options.stem == ResNetStem::kCifar) return nn::conv3x3(options.num_channels(), 64);
    return std::make_shared<nn::Conv2d>(options.num_channels(), 64, 7, nn::Conv2dOptions{.stride = 2, .padding = 3});
  }

  ResNetOptions options_;
  std::shared_ptr<nn::Conv2d> conv1_;
  nn::BatchNormPtr bn1_;
  torch::nn::Sequential layer1_, layer2_, layer3_, layer4_;
  std::shared_ptr<nn::Dropout> dropout_;
  std::shared_ptr<nn::Linear> fc_;
};

struct BottleneckOptions : BlockOptions {
  int64_t groups = 1;
  int64_t width_per_group = 64;

  void describe(KeyTable& keys) {
    BlockOptions::describe(keys);
    describe_groups(keys, groups, "Number of groups of the 3×3 convolution.");
    keys.add(
        "width_per_group", width_per_group,
        {.min = 1, .max = kMostChannels, .doc = "Number of channels per group in a block with 256 channels; 64 in ResNet, 4 in ResNeXt."});
  }
};

template <class Block>
Layer make_block(const BlockOptions& options, const Grouping& grouping, const LayerContext& context) {
  if (options.channels % Block::kExpansion != 0) {
    throw OptionError("channels", fmt::format("{} is not a multiple of {}; choose a multiple", options.channels, Block::kExpansion));
  }
  const auto in_channels = require_image(context)[0];
  const auto block = std::make_shared<Block>(in_channels, options.channels, options.stride, grouping, context.build.norm);
  return {torch::nn::AnyModule(block), slide(context, options.channels, 3, options.stride, 1)};
}

}  // namespace

void add_resnet(LayerRegistry& registry) {
  registry.add<BlockOptions>("basic_block", "The block of ResNet-18 and -34.",
                             [](const auto& options, const LayerContext& context) { return make_block<BasicBlock>(options, {}, context); });
  registry.add<BottleneckOptions>(
      "bottleneck", "The block of ResNet-50 and larger ones.", [](const auto& options, const LayerContext& context) {
        const auto width = options.channels / Bottleneck::kExpansion * options.width_per_group / 64;
        if (width < 1)
          throw OptionError("width_per_group", fmt::format("{} with channels {} gives groups of 0 channels; increase one of them",
                                                           options.width_per_group, options.channels));
        return make_block<Bottleneck>(options, {.groups = options.groups, .width = options.width_per_group}, context);
      });
}

void add_resnet(ModelRegistry& registry) {
  const auto add = [&registry]<class Block>(const char* name, const BlocksPerStage& blocks_per_stage, const char* doc,
                                            const Grouping& grouping = {}) {
    add_model<ResNet<Block>, ResNetOptions>(registry, name, doc, blocks_per_stage, grouping);
  };
  add.operator()<BasicBlock>("resnet18", {2, 2, 2, 2}, "torchvision's resnet18, 11.7 million parameters.");
  add.operator()<BasicBlock>("resnet34", {3, 4, 6, 3}, "torchvision's resnet34, 21.8 million parameters.");
  add.operator()<Bottleneck>("resnet50", {3, 4, 6, 3}, "torchvision's resnet50, 25.6 million parameters.");
  add.operator()<Bottleneck>("resnet101", {3, 4, 23, 3}, "torchvision's resnet101, 44.5 million parameters.");
  add.operator()<Bottleneck>("resnet152", {3, 8, 36, 3}, "torchvision's resnet152, 60.2 million parameters.");
  add.operator()<Bottleneck>("resnext50_32x4d", {3, 4, 6, 3}, "torchvision's resnext50_32x4d, 25.0 million parameters.",
                             {.groups = 32, .width = 4});
  add.operator()<Bottleneck>("wide_resnet50_2", {3, 4, 6, 3}, "torchvision's wide_resnet50_2, 68.9 million parameters.", {.width = 128});
}

}  // namespace trainer::models
