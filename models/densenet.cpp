// DenseNet (Huang et al. 2017) with torchvision's names, shapes and initial values (torchvision/models/densenet.py).

#include <torch/nn/modules/pooling.h>

#include <array>
#include <string>
#include <vector>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

constexpr int64_t kGrowth = 32;

// Adds a convolution after its normalisation and a ReLU. `number`: ends their names.
void add_convolution(LayerChain& chain, const std::string& number, const nn::BatchNormPtr& norm, std::shared_ptr<nn::Conv2d> convolution) {
  chain.add("norm" + number, torch::nn::AnyModule(norm));
  chain.add("relu" + number, torch::nn::AnyModule(std::make_shared<ActivationLayer>(nn::Activation::kRelu)));
  chain.add("conv" + number, torch::nn::AnyModule(std::move(convolution)));
}

std::shared_ptr<LayerChain> make_dense_layer(int64_t in_channels, int64_t growth, const nn::NormFactory& norm) {
  auto layer = std::make_shared<LayerChain>();
  add_convolution(*layer, "1", norm(in_channels), nn::conv1x1(in_channels, 4 * growth));
  add_convolution(*layer, "2", norm(4 * growth), nn::conv3x3(4 * growth, growth));
  return layer;
}

std::shared_ptr<LayerChain> make_transition(int64_t channels, const nn::NormFactory& norm) {
  auto transition = std::make_shared<LayerChain>();
  add_convolution(*transition, "", norm(channels), nn::conv1x1(channels, channels / 2));
  transition->add("pool", torch::nn::AnyModule(std::make_shared<torch::nn::AvgPool2dImpl>(2)));
  return transition;
}

// Each layer receives the input of the block and the outputs of all layers before it.
class DenseBlock : public torch::nn::Module {
 public:
  DenseBlock(int64_t num_layers, int64_t in_channels, int64_t growth, const nn::NormFactory& norm) {
    for (int64_t i = 0; i < num_layers; ++i) {
      const auto name = "denselayer" + std::to_string(i + 1);
      layers_.push_back(register_module(name, make_dense_layer(in_channels + i * growth, growth, norm)));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> features = {x};
    for (const auto& layer : layers_) features.push_back(layer->forward(features.size() == 1 ? x : at::cat(features, 1)));
    return at::cat(features, 1);
  }

 private:
  std::vector<std::shared_ptr<LayerChain>> layers_;
};

class DenseNet : public FeatureMapModel {
 public:
  DenseNet(const std::array<int64_t, 4>& layers_per_block, const ImageClassifierOptions& options, const BuildContext& context)
      : FeatureMapModel(options) {
    int64_t channels = 64;
    const auto add = [this](const std::string& name, auto layer) { features_->add(name, torch::nn::AnyModule(std::move(layer))); };
    const auto relu = [] { return std::make_shared<ActivationLayer>(nn::Activation::kRelu); };
    add("conv0", std::make_shared<nn::Conv2d>(options.num_channels(), channels, 7, nn::Conv2dOptions{.stride = 2, .padding = 3}));
    add("norm0", context.norm(channels));
    add("relu0", relu());
    add("pool0", std::make_shared<torch::nn::MaxPool2dImpl>(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
    for (size_t i = 0; i < layers_per_block.size(); ++i) {
      const auto number = std::to_string(i + 1);
      add("denseblock" + number, std::make_shared<DenseBlock>(layers_per_block[i], channels, kGrowth, context.norm));
      channels += layers_per_block[i] * kGrowth;
      if (i + 1 == layers_per_block.size()) break;
      add("transition" + number, make_transition(channels, context.norm));
      channels /= 2;
    }
    add("norm5", context.norm(channels));
    add("relu5", relu());
    register_layers(*register_module("features", std::make_shared<torch::nn::Module>()), *features_);
    classifier_ = register_module("classifier", std::make_shared<nn::Linear>(channels, options.num_outputs()));
    nn::init_convolutions_(*this, context.init_generator, nn::Fan::kIn);
    nn::default_uniform_(classifier_->weight, {}, context.init_generator);
    torch::nn::init::zeros_(classifier_->bias);
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override { return features_->forward(x); }
  torch::Tensor forward_head(const torch::Tensor& features) override { return classifier_->forward(features); }

 private:
  std::shared_ptr<LayerChain> features_ = std::make_shared<LayerChain>();  // its layers are registered elsewhere
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
        return {torch::nn::AnyModule(make_transition(channels, context.build.norm)), shape};
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
