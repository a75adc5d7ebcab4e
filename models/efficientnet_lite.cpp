// EfficientNet-Lite (Google 2020): EfficientNet without squeeze-excitation and with ReLU6, with the names, shapes and initial values of the
// Python package efficientnet_lite_pytorch, whose weights are TensorFlow's. As there, the padding of a strided convolution is asymmetric
// for some input sizes.

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

constexpr nn::BatchNormOptions kLiteNorm{.eps = 0.001, .momentum = 0.01};

struct SameConvolution {
  int64_t in_channels, out_channels;
  int64_t kernel_size = 1, stride = 1, groups = 1;
};

// Adds the convolution, its normalisation and a ReLU6, whose names end with `name` and `number`.
void add_same_convolution(LayerChain& chain, const std::string& name, const std::string& number, const SameConvolution& c,
                          const nn::NormFactory& norm, bool has_relu = true) {
  // With stride 1, both paddings are the same.
  const nn::Conv2dOptions options{.stride = c.stride, .padding = c.kernel_size / 2, .groups = c.groups, .same_padding = c.stride > 1};
  chain.add(name, torch::nn::AnyModule(std::make_shared<nn::Conv2d>(c.in_channels, c.out_channels, c.kernel_size, options)));
  chain.add("_bn" + number, torch::nn::AnyModule(norm(c.out_channels, kLiteNorm)));
  if (has_relu) chain.add("_relu" + number, torch::nn::AnyModule(std::make_shared<ActivationLayer>(nn::Activation::kRelu6)));
}

class LiteBlock : public LayerChain {
 public:
  LiteBlock(int64_t in_channels, int64_t out_channels, int64_t expansion, int64_t kernel_size, int64_t stride, double drop_path,
            const BuildContext& context)
      : is_residual_(stride == 1 && in_channels == out_channels) {
    const auto expanded = in_channels * expansion;
    if (expansion != 1) {
      add_same_convolution(*this, "_expand_conv", "0", {in_channels, expanded}, context.norm);
    }
    add_same_convolution(*this, "_depthwise_conv", "1", {expanded, expanded, kernel_size, stride, expanded}, context.norm);
    add_same_convolution(*this, "_project_conv", "2", {expanded, out_channels}, context.norm, false);
    drop_path_ = register_module("drop_path", std::make_shared<nn::DropPath>(drop_path, context.dropout_generator));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = LayerChain::forward(x);
    return is_residual_ ? drop_path_->forward(y) + x : y;
  }

 private:
  bool is_residual_;
  std::shared_ptr<nn::DropPath> drop_path_;
};

class EfficientNetLite : public FeatureMapModel {
 public:
  template <class Options>
  EfficientNetLite(double width, double depth, const Options& options, const BuildContext& context) : FeatureMapModel(options) {
    struct Stage {
      int64_t expansion, kernel_size, stride, channels, num_blocks;
    };
    constexpr std::array<Stage, 7> kStages = {
        {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2}, {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}}};
    constexpr int64_t kFirst = 32;
    constexpr int64_t kLast = 1280;
    // The first and the last stage are not scaled in depth.
    const auto num_blocks = [&](size_t stage) {
      const auto blocks = kStages[stage].num_blocks;
      const bool is_scaled = stage > 0 && stage + 1 < kStages.size();
      return is_scaled ? static_cast<int64_t>(std::ceil(static_cast<double>(blocks) * depth)) : blocks;
    };
    int64_t total = 0;
    for (size_t stage = 0; stage < kStages.size(); ++stage) total += num_blocks(stage);
    const auto features = std::make_shared<LayerChain>();
    add_same_convolution(*features, "_conv_stem", "0", {options.num_channels(), kFirst, 3, 2}, context.norm);
    const auto blocks_in_stages = std::make_shared<nn::LayerList>();
    features->add("_blocks", torch::nn::AnyModule(blocks_in_stages));
    int64_t channels = kFirst;
    int64_t number = 0;
    for (size_t stage = 0; stage < kStages.size(); ++stage) {
      const auto& [expansion, kernel_size, stride, of_lite0, blocks] = kStages[stage];
      const auto out_channels = make_divisible(static_cast<double>(of_lite0) * width, 8);
      for (int64_t i = 0; i < num_blocks(stage); ++i, ++number) {
        const auto probability = options.drop_path * static_cast<double>(number) / static_cast<double>(total);
        blocks_in_stages->add(
            std::make_shared<LiteBlock>(channels, out_channels, expansion, kernel_size, i == 0 ? stride : 1, probability, context));
        channels = out_channels;
      }
    }
    add_same_convolution(*features, "_conv_head", "1", {channels, kLast}, context.norm);
    register_layers(*this, *features);
    features_ = features;
    dropout_ = register_module("_dropout", std::make_shared<nn::Dropout>(options.dropout, context.dropout_generator));
    fc_ = register_module("_fc", std::make_shared<nn::Linear>(kLast, options.num_outputs()));
    init_as_pytorch<nn::Conv2d>(*this, context.init_generator);
    nn::default_uniform_(fc_->weight, fc_->bias, context.init_generator);
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override { return features_->forward(x); }
  torch::Tensor forward_head(const torch::Tensor& features) override { return fc_->forward(dropout_->forward(features)); }

 private:
  std::shared_ptr<LayerChain> features_;  // its layers are children of this module
  std::shared_ptr<nn::Dropout> dropout_;
  std::shared_ptr<nn::Linear> fc_;
};

}  // namespace

void add_efficientnet_lite(ModelRegistry& registry) {
  const auto add = [&registry]<class Options>(const char* name, const char* doc, double width, double depth) {
    add_model<EfficientNetLite, Options>(registry, name, doc, width, depth);
  };
  add.operator()<DropPathOptions<0.2, 0.2>>("efficientnet_lite0", "EfficientNet-Lite0, 4.7 million parameters.", 1.0, 1.0);
  add.operator()<DropPathOptions<0.2, 0.2>>("efficientnet_lite1", "EfficientNet-Lite1, 5.4 million parameters.", 1.0, 1.1);
  add.operator()<DropPathOptions<0.3, 0.2>>("efficientnet_lite2", "EfficientNet-Lite2, 6.1 million parameters.", 1.1, 1.2);
}

}  // namespace trainer::models
