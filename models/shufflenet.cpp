// ShuffleNetV2 (Ma et al. 2018) with torchvision's names, shapes and initial values (torchvision/models/shufflenetv2.py).

#include <array>
#include <string>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

std::shared_ptr<nn::Conv2d> depthwise(int64_t channels, int64_t stride) {
  return std::make_shared<nn::Conv2d>(channels, channels, 3, nn::Conv2dOptions{.stride = stride, .padding = 1, .groups = channels});
}

// The channels of a and b in turns, which is torchvision's shuffling of both in one copy.
torch::Tensor interleave_channels(const torch::Tensor& a, const torch::Tensor& b) {
  const auto in_turns = [](const torch::Tensor& first, const torch::Tensor& second, int64_t dimension) {
    const auto pair = [&](const torch::Tensor& x) { return x.unflatten(dimension, {x.size(dimension), 1}); };
    return at::cat({pair(first), pair(second)}, dimension + 1).flatten(dimension, dimension + 1);
  };
  if (b.suggest_memory_format() != torch::MemoryFormat::ChannelsLast) return in_turns(a, b, 1);
  // Permuting to NHWC, the order in memory, makes the result channels_last too.
  const auto rows_of = [](const torch::Tensor& x) { return x.permute({0, 2, 3, 1}); };
  return in_turns(rows_of(a), rows_of(b), 3).permute({0, 3, 1, 2});
}

// With stride 1, the first half of the channels passes unchanged, and the second half is convolved. With a larger stride, each half of the
// output is computed from all input channels, with convolutions of its own.
class ShuffleBlock : public torch::nn::Module {
 public:
  ShuffleBlock(int64_t in_channels, int64_t out_channels, int64_t stride, const nn::NormFactory& norm) : is_strided_(stride > 1) {
    const auto half = out_channels / 2;
    const auto add = [&](LayerChain& branch, const std::shared_ptr<nn::Conv2d>& convolution, int64_t channels, bool has_relu) {
      branch.push_back(convolution);
      branch.push_back(norm(channels));
      if (has_relu) branch.push_back(std::make_shared<ActivationLayer>(nn::Activation::kRelu));
    };
    branch1_ = register_module("branch1", std::make_shared<LayerChain>());
    branch2_ = register_module("branch2", std::make_shared<LayerChain>());
    if (is_strided_) {
      add(*branch1_, depthwise(in_channels, stride), in_channels, false);
      add(*branch1_, nn::conv1x1(in_channels, half), half, true);
    }
    add(*branch2_, nn::conv1x1(is_strided_ ? in_channels : half, half), half, true);
    add(*branch2_, depthwise(half, stride), half, false);
    add(*branch2_, nn::conv1x1(half, half), half, true);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    if (is_strided_) return interleave_channels(branch1_->forward(x), branch2_->forward(x));
    const auto half = x.size(1) / 2;
    return interleave_channels(x.slice(1, 0, half), branch2_->forward(x.slice(1, half)));
  }

 private:
  bool is_strided_;
  std::shared_ptr<LayerChain> branch1_, branch2_;
};

class ShuffleNet : public FeatureMapModel {
 public:
  ShuffleNet(const ImageClassifierOptions& options, const BuildContext& context) : FeatureMapModel(options) {
    constexpr std::array<int64_t, 3> kBlocks = {4, 8, 4};
    constexpr std::array<int64_t, 3> kChannels = {116, 232, 464};
    constexpr int64_t kLast = 1024;
    int64_t channels = 24;
    conv1_ =
        register_module("conv1", std::make_shared<ConvNorm>(options.num_channels(), channels, ConvNormOptions{.stride = 2}, context.norm));
    for (size_t i = 0; i < kBlocks.size(); ++i) {
      const auto stage = make_stage<ShuffleBlock>(kBlocks[i], channels, kChannels[i], 2, context.norm);
      stages_.push_back(register_module("stage" + std::to_string(i + 2), stage));
      channels = kChannels[i];
    }
    conv5_ = register_module("conv5", std::make_shared<ConvNorm>(channels, kLast, ConvNormOptions{.kernel_size = 1}, context.norm));
    fc_ = register_module("fc", std::make_shared<nn::Linear>(kLast, options.num_outputs()));
    init_as_pytorch<nn::Conv2d>(*this, context.init_generator);
    nn::default_uniform_(fc_->weight, fc_->bias, context.init_generator);
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override {
    auto y = at::max_pool2d(conv1_->forward(x), /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    for (auto& stage : stages_) y = stage->forward(y);
    return conv5_->forward(y);
  }
  torch::Tensor pool_maps(const torch::Tensor& maps) override { return maps.mean({2, 3}); }
  torch::Tensor forward_head(const torch::Tensor& features) override { return fc_->forward(features); }

 private:
  std::shared_ptr<ConvNorm> conv1_, conv5_;
  std::vector<torch::nn::Sequential> stages_;
  std::shared_ptr<nn::Linear> fc_;
};

}  // namespace

void add_shufflenet(ModelRegistry& registry) {
  add_model<ShuffleNet, ImageClassifierOptions>(registry, "shufflenet_v2_x1_0",
                                                "torchvision's shufflenet_v2_x1_0, 2.3 million parameters.");
}

}  // namespace trainer::models
