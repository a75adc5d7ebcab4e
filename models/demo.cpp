// Two tiny networks for a first run.

#include "models/model_registry.h"
#include "trainer/nn.h"

namespace trainer::models {
namespace {

struct DemoLinearOptions : ModelOptions {
  int64_t in_features = 10;
  int64_t out_features = 10;

  void describe(KeyTable& keys) {
    keys.add("in_features", in_features, {.min = 1, .doc = "Number of values per sample."});
    keys.add("out_features", out_features, {.min = 1, .doc = "Number of outputs."});
  }
  std::vector<int64_t> input_shape() const override { return {in_features}; }
  int64_t num_outputs() const override { return out_features; }
  std::string outputs_key() const override { return "out_features"; }
};

struct DemoConvOptions : ClassifierOptions {
  void describe(KeyTable& keys) { describe_num_classes(keys); }
  std::vector<int64_t> input_shape() const override { return {3, 32, 32}; }
};

class DemoLinear : public Model {
 public:
  DemoLinear(const DemoLinearOptions& options, const BuildContext& context) : Model(options) {
    fc_ = register_module("fc", std::make_shared<nn::Linear>(options.in_features, options.out_features));
    nn::default_uniform_(fc_->weight, fc_->bias, context.init_generator);
  }

  torch::Tensor forward(const torch::Tensor& x) override { return fc_->forward(x); }

 private:
  std::shared_ptr<nn::Linear> fc_;
};

class DemoConv : public Model {
 public:
  DemoConv(const DemoConvOptions& options, const BuildContext& context) : Model(options) {
    conv_ = register_module("conv", std::make_shared<nn::Conv2d>(3, kChannels, 3, nn::Conv2dOptions{.bias = true}));
    fc_ = register_module("fc", std::make_shared<nn::Linear>(kChannels * kOutputSize * kOutputSize, options.num_outputs()));
    nn::default_uniform_(conv_->weight, conv_->bias, context.init_generator);
    nn::default_uniform_(fc_->weight, fc_->bias, context.init_generator);
  }

  torch::Tensor forward(const torch::Tensor& x) override { return fc_->forward(conv_->forward(x).relu_().flatten(1)); }
  // With channels last, flatten would copy the whole feature map to NCHW order, in forward and backward.
  bool prefers_channels_last() const override { return false; }

 private:
  static constexpr int64_t kChannels = 16;
  static constexpr int64_t kOutputSize = 30;  // 32 minus the kernel's border

  std::shared_ptr<nn::Conv2d> conv_;
  std::shared_ptr<nn::Linear> fc_;
};

}  // namespace

void add_demo(ModelRegistry& registry) {
  add_model<DemoLinear, DemoLinearOptions>(registry, "demo_linear", "One linear layer, for a first run on synthetic data.");
  add_model<DemoConv, DemoConvOptions>(registry, "demo_conv", "One convolution and one linear layer, for a first run on 32×32 images.");
}

}  // namespace trainer::models
