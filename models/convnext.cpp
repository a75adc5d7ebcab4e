// ConvNeXt (Liu et al. 2022) with torchvision's names, shapes and initial values (torchvision/models/convnext.py).

#include <array>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

constexpr double kConvNextEps = 1e-6;

class ConvNextBlock : public torch::nn::Module {
 public:
  ConvNextBlock(int64_t channels, double drop_path, const BuildContext& context) {
    auto block = std::make_shared<torch::nn::Module>();
    const nn::Conv2dOptions depthwise{.padding = 3, .groups = channels, .bias = true};
    convolution_ = block->register_module("0", std::make_shared<nn::Conv2d>(channels, channels, 7, depthwise));
    norm_ = block->register_module("2", std::make_shared<nn::LayerNorm>(channels, kConvNextEps));
    expansion_ = block->register_module("3", std::make_shared<nn::Linear>(channels, 4 * channels));
    projection_ = block->register_module("5", std::make_shared<nn::Linear>(4 * channels, channels));
    layer_scale_ = register_parameter("layer_scale", torch::full({channels, 1, 1}, 1e-6));
    register_module("block", block);
    drop_path_ = register_module("stochastic_depth", std::make_shared<nn::DropPath>(drop_path, context.dropout_generator));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = norm_->forward(convolution_->forward(x).permute({0, 2, 3, 1}));
    const auto z = projection_->forward(at::gelu(expansion_->forward(y))).permute({0, 3, 1, 2});
    return drop_path_->forward(layer_scale_ * z) + x;
  }

 private:
  std::shared_ptr<nn::Conv2d> convolution_;
  std::shared_ptr<nn::LayerNorm> norm_;
  std::shared_ptr<nn::Linear> expansion_, projection_;
  torch::Tensor layer_scale_;
  std::shared_ptr<nn::DropPath> drop_path_;
};

class ConvNext : public FeatureMapModel {
 public:
  template <class Options>
  ConvNext(const std::array<int64_t, 4>& depths, const Options& options, const BuildContext& context) : FeatureMapModel(options) {
    constexpr std::array<int64_t, 4> kChannels = {96, 192, 384, 768};
    const auto strided = [](int64_t from, int64_t to, int64_t size) {
      return std::make_shared<nn::Conv2d>(from, to, size, nn::Conv2dOptions{.stride = size, .bias = true});
    };
    const auto stem = std::make_shared<nn::LayerList>();
    stem->add(strided(options.num_channels(), kChannels[0], 4));
    stem->add(std::make_shared<ChannelNorm>(kChannels[0], kConvNextEps));
    features_->push_back(stem);
    int64_t num_blocks = 0;
    for (const auto depth : depths) num_blocks += depth;
    int64_t number = 0;
    for (size_t stage = 0; stage < depths.size(); ++stage) {
      const auto blocks = std::make_shared<nn::LayerList>();
      for (int64_t i = 0; i < depths[stage]; ++i, ++number) {
        const auto probability = options.drop_path * static_cast<double>(number) / static_cast<double>(num_blocks - 1);
        blocks->add(std::make_shared<ConvNextBlock>(kChannels[stage], probability, context));
      }
      features_->push_back(blocks);
      if (stage + 1 == depths.size()) break;
      const auto downsampling = std::make_shared<nn::LayerList>();
      downsampling->add(std::make_shared<ChannelNorm>(kChannels[stage], kConvNextEps));
      downsampling->add(strided(kChannels[stage], kChannels[stage + 1], 2));
      features_->push_back(downsampling);
    }
    register_module("features", features_);
    auto classifier = std::make_shared<torch::nn::Module>();
    norm_ = classifier->register_module("0", std::make_shared<nn::LayerNorm>(kChannels[3], kConvNextEps));
    linear_ = classifier->register_module("2", std::make_shared<nn::Linear>(kChannels[3], options.num_outputs()));
    register_module("classifier", classifier);
    constexpr double kStd = 0.02;
    for (const auto& module : modules(/*include_self=*/false)) {
      auto* convolution = module->as<nn::Conv2d>();
      auto* linear = module->as<nn::Linear>();
      if (convolution == nullptr && linear == nullptr) continue;
      nn::truncated_normal_(convolution != nullptr ? convolution->weight : linear->weight, kStd, context.init_generator);
      torch::nn::init::zeros_(convolution != nullptr ? convolution->bias : linear->bias);
    }
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override { return features_->forward(x); }
  torch::Tensor pool_maps(const torch::Tensor& maps) override { return norm_->forward(average_channels(maps)); }
  torch::Tensor forward_head(const torch::Tensor& features) override { return linear_->forward(features); }

 private:
  torch::nn::Sequential features_;
  std::shared_ptr<nn::LayerNorm> norm_;
  std::shared_ptr<nn::Linear> linear_;
};

template <double kDropPath>
struct ConvNextOptions : ImageClassifierOptions {
  double drop_path = kDropPath;

  void describe(KeyTable& keys) {
    ImageClassifierOptions::describe(keys);
    describe_drop_path(keys, drop_path);
  }
};

struct ConvNextBlockOptions : LayerOptions {
  double drop_path = 0;

  void describe(KeyTable& keys) {
    describe_drop_path(keys, drop_path, kDropPathOfLayer);
    LayerOptions::describe(keys);
  }
};

}  // namespace

void add_convnext(LayerRegistry& registry) {
  registry.add<ConvNextBlockOptions>(
      "convnext_block", "The block of ConvNeXt.", [](const auto& options, const LayerContext& context) -> Layer {
        const auto block = std::make_shared<ConvNextBlock>(require_image(context)[0], options.drop_path, context.build);
        return {torch::nn::AnyModule(block), context.input_shape};
      });
}

void add_convnext(ModelRegistry& registry) {
  using Depths = std::array<int64_t, 4>;
  add_model<ConvNext, ConvNextOptions<0.1>>(registry, "convnext_tiny", "torchvision's convnext_tiny, 28.6 million parameters.",
                                            Depths{3, 3, 9, 3});
  add_model<ConvNext, ConvNextOptions<0.4>>(registry, "convnext_small", "torchvision's convnext_small, 50.2 million parameters.",
                                            Depths{3, 3, 27, 3});
}

}  // namespace trainer::models
