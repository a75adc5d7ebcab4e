// SqueezeNet 1.1 (Iandola et al. 2016) with torchvision's names, shapes and initial values (torchvision/models/squeezenet.py).

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/pooling.h>

#include <cmath>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

using SqueezeNetOptions = DropoutOptions<0.5>;

class Fire : public torch::nn::Module {
 public:
  Fire(int64_t in_channels, int64_t squeezed, int64_t expanded) {
    squeeze_ = register_module("squeeze", std::make_shared<nn::Conv2d>(in_channels, squeezed, 1, nn::Conv2dOptions{.bias = true}));
    expand1x1_ = register_module("expand1x1", std::make_shared<nn::Conv2d>(squeezed, expanded, 1, nn::Conv2dOptions{.bias = true}));
    expand3x3_ =
        register_module("expand3x3", std::make_shared<nn::Conv2d>(squeezed, expanded, 3, nn::Conv2dOptions{.padding = 1, .bias = true}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = at::relu(squeeze_->forward(x));
    return at::relu(at::cat({expand1x1_->forward(y), expand3x3_->forward(y)}, 1));
  }

 private:
  std::shared_ptr<nn::Conv2d> squeeze_, expand1x1_, expand3x3_;
};

torch::nn::MaxPool2d pool() { return torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).ceil_mode(true)); }

class SqueezeNet : public FeatureMapModel {
 public:
  SqueezeNet(const SqueezeNetOptions& options, const BuildContext& context) : FeatureMapModel(options) {
    const auto fire = [](int64_t in_channels, int64_t squeezed, int64_t expanded) {
      return std::make_shared<Fire>(in_channels, squeezed, expanded);
    };
    const auto first = std::make_shared<nn::Conv2d>(options.num_channels(), 64, 3, nn::Conv2dOptions{.stride = 2, .bias = true});
    features_ =
        register_module("features", torch::nn::Sequential(first, torch::nn::ReLU(), pool(), fire(64, 16, 64), fire(128, 16, 64), pool(),
                                                          fire(128, 32, 128), fire(256, 32, 128), pool(), fire(256, 48, 192),
                                                          fire(384, 48, 192), fire(384, 64, 256), fire(512, 64, 256)));
    const auto last = std::make_shared<nn::Conv2d>(512, options.num_outputs(), 1, nn::Conv2dOptions{.bias = true});
    classifier_ = register_module(
        "classifier",
        torch::nn::Sequential(std::make_shared<nn::Dropout>(options.dropout, context.dropout_generator), last, torch::nn::ReLU()));
    for (auto* convolution : nn::layers_of<nn::Conv2d>(*this)) {
      const auto fan_in = static_cast<double>(convolution->weight.numel() / convolution->weight.size(0));
      if (convolution == last.get()) {
        nn::normal_(convolution->weight, 0, 0.01, context.init_generator);
      } else {
        // torch.nn.init.kaiming_uniform_
        nn::uniform_(convolution->weight, std::sqrt(6 / fan_in), context.init_generator);
      }
      torch::nn::init::zeros_(convolution->bias);
    }
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override { return features_->forward(x); }
  torch::Tensor pool_maps(const torch::Tensor& maps) override { return maps; }
  torch::Tensor forward_head(const torch::Tensor& features) override { return average_channels(classifier_->forward(features)); }

 private:
  torch::nn::Sequential features_, classifier_;
};

}  // namespace

void add_squeezenet(ModelRegistry& registry) {
  add_model<SqueezeNet, SqueezeNetOptions>(registry, "squeezenet1_1",
                                           "torchvision's squeezenet1_1, 1.2 million parameters, without batch normalisation.");
}

}  // namespace trainer::models
