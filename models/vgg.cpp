// The plain convolutional networks of Simonyan & Zisserman (2014) with batch normalisation; torchvision's names, shapes and initial
// values (torchvision/models/vgg.py).

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/pooling.h>

#include <array>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

enum class VggHead { kImagenet, kCifar };

struct VggOptions : ImageClassifierOptions {
  VggHead head = VggHead::kImagenet;
  double dropout = 0.5;

  void describe(KeyTable& keys) {
    ImageClassifierOptions::describe(keys);
    keys.add_choice("head", head, {{"imagenet", VggHead::kImagenet}, {"cifar", VggHead::kCifar}},
                    {.doc = "Last layers. imagenet: three linear layers on 7×7 features; cifar: one on the mean of each channel."});
    keys.add("dropout", dropout,
             {.min = 0.0,
              .max = 1.0,
              .max_excluded = true,
              .doc = "Probability of dropping an input of the last two linear layers; with the cifar head, of its only linear layer."});
  }
  std::vector<int64_t> input_shape() const override {
    if (head == VggHead::kCifar) return {num_channels(), 32, 32};
    return ImageClassifierOptions::input_shape();
  }
};

using ConvolutionsPerStage = std::array<int64_t, 5>;
constexpr std::array<int64_t, 5> kStageChannels = {64, 128, 256, 512, 512};

torch::nn::ReLU relu_in_place() { return torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)); }

torch::nn::Sequential make_classifier(const VggOptions& options, const BuildContext& context) {
  const auto dropout = [&] { return std::make_shared<nn::Dropout>(options.dropout, context.dropout_generator); };
  if (options.head == VggHead::kCifar) {
    return torch::nn::Sequential(dropout(), std::make_shared<nn::Linear>(512, options.num_outputs()));
  }
  return torch::nn::Sequential(std::make_shared<nn::Linear>(512 * 7 * 7, 4096), relu_in_place(), dropout(),  //
                               std::make_shared<nn::Linear>(4096, 4096), relu_in_place(), dropout(),         //
                               std::make_shared<nn::Linear>(4096, options.num_outputs()));
}

class Vgg : public FeatureMapModel {
 public:
  Vgg(const ConvolutionsPerStage& convolutions_per_stage, const VggOptions& options, const BuildContext& context)
      : FeatureMapModel(options), options_(options) {
    int64_t in_channels = options.num_channels();
    for (size_t stage = 0; stage < kStageChannels.size(); ++stage) {
      const auto channels = kStageChannels[stage];
      for (int64_t i = 0; i < convolutions_per_stage[stage]; ++i) {
        features_->push_back(std::make_shared<nn::Conv2d>(in_channels, channels, 3, nn::Conv2dOptions{.padding = 1, .bias = true}));
        features_->push_back(context.norm(channels));
        features_->push_back(std::make_shared<ActivationLayer>(nn::Activation::kRelu));
        in_channels = channels;
      }
      features_->push_back(std::make_shared<torch::nn::MaxPool2dImpl>(2));
    }
    register_layers(*register_module("features", std::make_shared<torch::nn::Module>()), *features_);
    classifier_ = register_module("classifier", make_classifier(options, context));
    nn::init_convolutions_(*this, context.init_generator);
    init_linear_layers(*this, context.init_generator);
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override { return features_->forward(x); }
  torch::Tensor pool_maps(const torch::Tensor& maps) override {
    const int64_t pooled_size = options_.head == VggHead::kImagenet ? 7 : 1;
    return at::adaptive_avg_pool2d(maps, {pooled_size, pooled_size}).flatten(1);
  }
  torch::Tensor forward_head(const torch::Tensor& features) override { return classifier_->forward(features); }

 private:
  VggOptions options_;
  std::shared_ptr<LayerChain> features_ = std::make_shared<LayerChain>();  // its layers are registered elsewhere
  torch::nn::Sequential classifier_;
};

}  // namespace

void add_vgg(ModelRegistry& registry) {
  const auto add = [&registry](const char* name, const ConvolutionsPerStage& convolutions_per_stage, const char* doc) {
    add_model<Vgg, VggOptions>(registry, name, doc, convolutions_per_stage);
  };
  add("vgg11_bn", {1, 1, 2, 2, 2}, "torchvision's vgg11_bn, 132.9 million parameters, 9 million with the cifar head.");
  add("vgg13_bn", {2, 2, 2, 2, 2}, "torchvision's vgg13_bn, 133.1 million parameters, 9 million with the cifar head.");
  add("vgg16_bn", {2, 2, 3, 3, 3}, "torchvision's vgg16_bn, 138.4 million parameters, 15 million with the cifar head.");
  add("vgg19_bn", {2, 2, 4, 4, 4}, "torchvision's vgg19_bn, 143.7 million parameters, 20 million with the cifar head.");
}

}  // namespace trainer::models
