// DenseNet (Huang et al. 2017) with torchvision's names, shapes and initial values (torchvision/models/densenet.py).

#include <array>
#include <string>
#include <vector>

#include "models/blocks.h"
#include "models/registry.h"

namespace trainer::models {
namespace {

constexpr int64_t kGrowth = 32;

class DenseLayer : public torch::nn::Module {
 public:
  DenseLayer(int64_t in_channels, int64_t growth, const nn::NormFactory& norm) {
    const auto bottleneck = 4 * growth;
    norm1_ = register_module("norm1", norm(in_channels));
    conv1_ = register_module("conv1", nn::conv1x1(in_channels, bottleneck));
    norm2_ = register_module("norm2", norm(bottleneck));
    conv2_ = register_module("conv2", nn::conv3x3(bottleneck, growth));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = conv1_->forward(norm1_->forward_relu(x));
    return conv2_->forward(norm2_->forward_relu(y));
  }

 private:
  nn::BatchNormPtr norm1_, norm2_;
  std::shared_ptr<nn::Conv2d> conv1_, conv2_;
};

// Each layer receives the input of the block and the outputs of all layers before it.
class DenseBlock : public torch::nn::Module {
 public:
  DenseBlock(int64_t num_layers, int64_t in_channels, int64_t growth, const nn::NormFactory& norm) {
    for (int64_t i = 0; i < num_layers; ++i) {
      const auto name = "denselayer" + std::to_string(i + 1);
      layers_.push_back(register_module(name, std::make_shared<DenseLayer>(in_channels + i * growth, growth, norm)));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> features = {x};
    for (const auto& layer : layers_) features.push_back(layer->forward(features.size() == 1 ? x : at::cat(features, 1)));
    return at::cat(features, 1);
  }

 private:
  std::vector<std::shared_ptr<DenseLayer>> layers_;
};

class Transition : public torch::nn::Module {
 public:
  Transition(int64_t channels, const nn::NormFactory& norm) {
    norm_ = register_module("norm", norm(channels));
    conv_ = register_module("conv", nn::conv1x1(channels, channels / 2));
  }
  torch::Tensor forward(const torch::Tensor& x) { return at::avg_pool2d(conv_->forward(norm_->forward_relu(x)), 2); }

 private:
  nn::BatchNormPtr norm_;
  std::shared_ptr<nn::Conv2d> conv_;
};

class DenseNet : public BackboneModel {
 public:
  DenseNet(const std::array<int64_t, 4>& layers_per_block, const ImageClassifierOptions& options, const BuildContext& context)
      : BackboneModel(options) {
    int64_t channels = 64;
    conv0_ = std::make_shared<nn::Conv2d>(options.num_channels(), channels, 7, nn::Conv2dOptions{.stride = 2, .padding = 3});
    norm0_ = context.norm(channels);
    for (size_t i = 0; i < layers_per_block.size(); ++i) {
      const auto number = std::to_string(i + 1);
      blocks_->push_back("denseblock" + number, std::make_shared<DenseBlock>(layers_per_block[i], channels, kGrowth, context.norm));
      channels += layers_per_block[i] * kGrowth;
      if (i + 1 == layers_per_block.size()) break;
      blocks_->push_back("transition" + number, std::make_shared<Transition>(channels, context.norm));
      channels /= 2;
    }
    norm5_ = context.norm(channels);
    // This module only gives the parameters torchvision's names.
    auto features = std::make_shared<torch::nn::Module>();
    features->register_module("conv0", conv0_);
    features->register_module("norm0", norm0_);
    for (const auto& block : blocks_->named_children()) features->register_module(block.key(), block.value());
    features->register_module("norm5", norm5_);
    register_module("features", features);
    classifier_ = register_module("classifier", std::make_shared<nn::Linear>(channels, options.num_outputs()));
    nn::init_convolutions_(*this, context.init_generator, nn::Fan::kIn);
    nn::default_uniform_(classifier_->weight, {}, context.init_generator);
    torch::nn::init::zeros_(classifier_->bias);
  }

  torch::Tensor forward_features(const torch::Tensor& x) override {
    auto y = nn::convolve_normalise_relu(*conv0_, *norm0_, x);
    y = blocks_->forward(at::max_pool2d(y, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1));
    return average_channels(norm5_->forward_relu(y));
  }
  torch::Tensor forward_head(const torch::Tensor& features) override { return classifier_->forward(features); }

 private:
  std::shared_ptr<nn::Conv2d> conv0_;
  nn::BatchNormPtr norm0_, norm5_;
  torch::nn::Sequential blocks_;
  std::shared_ptr<nn::Linear> classifier_;
};

struct DenseBlockOptions : LayerOptions {
  int64_t num_layers = 6;
  int64_t growth = kGrowth;

  void describe(KeyTable& keys) {
    keys.add("num_layers", num_layers,
             {.min = 1, .max = 1000, .doc = "Number of layers; each receives the block's input and the outputs of all layers before it."});
    keys.add("growth", growth, {.min = 1, .max = kMostChannels, .doc = "Number of channels that each layer adds."});
    LayerOptions::describe(keys);
  }
};

}  // namespace

void add_densenet(LayerRegistry& registry) {
  registry.add<DenseBlockOptions>("dense_block", "The block of DenseNet.", [](const auto& options, const LayerContext& context) -> Layer {
    const auto& shape = require_image(context);
    const auto block = std::make_shared<DenseBlock>(options.num_layers, shape[0], options.growth, context.build.norm);
    return {torch::nn::AnyModule(block), {shape[0] + options.num_layers * options.growth, shape[1], shape[2]}};
  });
  registry.add<LayerOptions>(
      "transition", "The layer between the blocks of DenseNet; halves channels, height and width.",
      [](const auto&, const LayerContext& context) -> Layer {
        const auto channels = require_image(context)[0];
        if (channels < 2) throw UsageError("halves the channels, but its input has only one; give the layer before it more channels");
        const auto shape = slide(context, channels / 2, 2, 2, 0);
        return {torch::nn::AnyModule(std::make_shared<Transition>(channels, context.build.norm)), shape};
      });
}

void add_densenet(ModelRegistry& registry) {
  const auto add = [&registry](const char* name, const char* doc, const std::array<int64_t, 4>& layers_per_block) {
    add_model<DenseNet, ImageClassifierOptions>(registry, name, doc, layers_per_block);
  };
  add("densenet121", "torchvision's densenet121, 8.0 million parameters.", {6, 12, 24, 16});
  add("densenet169", "torchvision's densenet169, 14.1 million parameters.", {6, 12, 32, 32});
}

}  // namespace trainer::models
