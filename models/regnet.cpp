// RegNetY (Radosavovic et al. 2020) with torchvision's names, shapes and initial values (torchvision/models/regnet.py).

#include <array>
#include <cmath>
#include <string>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

// The result of torchvision's BlockParams.from_init_params.
struct RegNetDesign {
  std::array<int64_t, 4> depths, widths;
  int64_t group_width;
};

class RegNetBlock : public torch::nn::Module {
 public:
  RegNetBlock(int64_t in_channels, int64_t out_channels, int64_t stride, int64_t group_width, const nn::NormFactory& norm) {
    if (in_channels != out_channels || stride != 1) {
      const ConvNormOptions projection{.kernel_size = 1, .stride = stride, .activation = nn::Activation::kNone};
      projection_ = register_module("proj", std::make_shared<ConvNorm>(in_channels, out_channels, projection, norm));
    }
    auto branch = std::make_shared<torch::nn::Module>();
    const auto add = [&](const char* name, int64_t from, const ConvNormOptions& options) {
      return branch->register_module(name, std::make_shared<ConvNorm>(from, out_channels, options, norm));
    };
    a_ = add("a", in_channels, {.kernel_size = 1});
    b_ = add("b", out_channels, {.stride = stride, .groups = out_channels / group_width});
    const auto squeezed = std::lround(0.25 * static_cast<double>(in_channels));
    se_ = branch->register_module(
        "se", std::make_shared<nn::SqueezeExcitation>(out_channels, squeezed, nn::Activation::kRelu, nn::Activation::kSigmoid));
    c_ = add("c", out_channels, {.kernel_size = 1, .activation = nn::Activation::kNone});
    register_module("f", branch);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = se_->forward(b_->forward(a_->forward(x)));
    const auto last = c_->layers();
    return nn::convolve_normalise_relu(last.convolution, last.norm, y, projection_ ? projection_->forward(x) : x);
  }

 private:
  std::shared_ptr<ConvNorm> projection_, a_, b_, c_;
  std::shared_ptr<nn::SqueezeExcitation> se_;
};

class RegNet : public FeatureMapModel {
 public:
  RegNet(const RegNetDesign& design, const ImageClassifierOptions& options, const BuildContext& context) : FeatureMapModel(options) {
    int64_t channels = 32;
    stem_ =
        register_module("stem", std::make_shared<ConvNorm>(options.num_channels(), channels, ConvNormOptions{.stride = 2}, context.norm));
    for (size_t stage = 0; stage < design.widths.size(); ++stage) {
      const auto number = std::to_string(stage + 1);
      const auto blocks = std::make_shared<nn::LayerList>();
      for (int64_t i = 0; i < design.depths[stage]; ++i) {
        const auto block = std::make_shared<RegNetBlock>(channels, design.widths[stage], i == 0 ? 2 : 1, design.group_width, context.norm);
        blocks->add("block" + number + "-" + std::to_string(i), block);
        channels = design.widths[stage];
      }
      trunk_->push_back("block" + number, blocks);
    }
    register_module("trunk_output", trunk_);
    fc_ = register_module("fc", std::make_shared<nn::Linear>(channels, options.num_outputs()));
    nn::init_convolutions_(*this, context.init_generator);
    // The biases of convolutions get PyTorch's default initial values.
    for (const auto* convolution : nn::layers_of<nn::Conv2d>(*this)) {
      if (!convolution->bias.defined()) continue;
      const auto fan_in = static_cast<double>(convolution->weight.numel() / convolution->weight.size(0));
      nn::uniform_(convolution->bias, 1 / std::sqrt(fan_in), context.init_generator);
    }
    init_linear_layers(*this, context.init_generator);
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override { return trunk_->forward(stem_->forward(x)); }
  torch::Tensor forward_head(const torch::Tensor& features) override { return fc_->forward(features); }

 private:
  std::shared_ptr<ConvNorm> stem_;
  torch::nn::Sequential trunk_;
  std::shared_ptr<nn::Linear> fc_;
};

}  // namespace

void add_regnet(ModelRegistry& registry) {
  const auto add = [&registry](const char* name, const char* doc, const RegNetDesign& design) {
    add_model<RegNet, ImageClassifierOptions>(registry, name, doc, design);
  };
  add("regnet_y_400mf", "torchvision's regnet_y_400mf, 4.3 million parameters.", {{1, 3, 6, 6}, {48, 104, 208, 440}, 8});
  add("regnet_y_800mf", "torchvision's regnet_y_800mf, 6.4 million parameters.", {{1, 3, 8, 2}, {64, 144, 320, 784}, 16});
  add("regnet_y_1_6gf", "torchvision's regnet_y_1_6gf, 11.2 million parameters.", {{2, 6, 17, 2}, {48, 120, 336, 888}, 24});
}

}  // namespace trainer::models
