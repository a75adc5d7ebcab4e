// Two tiny networks for a first run, with the shapes that PyTorch's tutorials use.

#include "models/registry.h"
#include "nn/init.h"
#include "nn/layers.h"

namespace trainer::models {
namespace {

struct DemoLinearOptions : config::Options {
  int64_t in_features = 10;
  int64_t out_features = 10;

  void describe(config::KeyTable& keys) override {
    keys.add("in_features", in_features, {.min = 1, .doc = "Values of one sample."});
    keys.add("out_features", out_features, {.min = 1, .doc = "Outputs of the layer."});
  }
};

struct DemoConvOptions : config::Options {
  int64_t num_classes = 10;

  void describe(config::KeyTable& keys) override { keys.add("num_classes", num_classes, {.min = 1, .doc = "Outputs of the last layer."}); }
};

class DemoLinear : public Model {
 public:
  DemoLinear(const DemoLinearOptions& options, const BuildContext& context)
      : in_features_(options.in_features), out_features_(options.out_features) {
    fc_ = register_module("fc", std::make_shared<nn::Linear>(in_features_, out_features_));
    nn::default_uniform_(fc_->weight, fc_->bias, context.init_generator);
  }

  torch::Tensor forward(const torch::Tensor& x) override { return fc_->forward(x); }
  std::vector<int64_t> input_shape() const override { return {in_features_}; }
  int64_t num_outputs() const override { return out_features_; }

 private:
  int64_t in_features_;
  int64_t out_features_;
  std::shared_ptr<nn::Linear> fc_;
};

class DemoConv : public Model {
 public:
  DemoConv(const DemoConvOptions& options, const BuildContext& context) : num_classes_(options.num_classes) {
    conv_ = register_module("conv", std::make_shared<nn::Conv2d>(3, kChannels, 3, nn::Conv2dOptions{.bias = true}));
    fc_ = register_module("fc", std::make_shared<nn::Linear>(kChannels * kOutputSize * kOutputSize, num_classes_));
    nn::default_uniform_(conv_->weight, conv_->bias, context.init_generator);
    nn::default_uniform_(fc_->weight, fc_->bias, context.init_generator);
  }

  torch::Tensor forward(const torch::Tensor& x) override { return fc_->forward(conv_->forward(x).relu_().flatten(1)); }
  std::vector<int64_t> input_shape() const override { return {3, 32, 32}; }
  int64_t num_outputs() const override { return num_classes_; }
  // flatten would copy the whole feature map to NCHW order, in forward and in backward.
  bool prefers_channels_last() const override { return false; }

 private:
  static constexpr int64_t kChannels = 16;
  static constexpr int64_t kOutputSize = 30;  // 32 minus the kernel's border

  int64_t num_classes_;
  std::shared_ptr<nn::Conv2d> conv_;
  std::shared_ptr<nn::Linear> fc_;
};

}  // namespace

void add_demo(ModelRegistry& registry) {
  registry.add<DemoLinearOptions>("demo_linear", "One linear layer, for a first run on synthetic data.",
                                  [](const auto& options, const auto& context) { return std::make_shared<DemoLinear>(options, context); });
  registry.add<DemoConvOptions>("demo_conv", "One convolution and one linear layer, for a first run on 32×32 images.",
                                [](const auto& options, const auto& context) { return std::make_shared<DemoConv>(options, context); });
}

}  // namespace trainer::models
