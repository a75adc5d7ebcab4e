// ShuffleNetV2 (Ma et al. 2018) with torchvision's names, shapes and initial values (torchvision/models/shufflenetv2.py).

#include <array>
#include <string>

#include "models/blocks.h"
#include "models/registry.h"

namespace trainer::models {
namespace {

// A convolution and its norm, which are consecutive children of a list.
struct ListedConvNorm {
  std::shared_ptr<nn::Conv2d> convolution;
  nn::BatchNormPtr norm;

  torch::Tensor forward(const torch::Tensor& x) const { return norm->forward(convolution->forward(x)); }
  torch::Tensor forward_relu(const torch::Tensor& x) const { return nn::convolve_normalise_relu(*convolution, *norm, x); }
};

ListedConvNorm add_to(torch::nn::Module& list, int number, std::shared_ptr<nn::Conv2d> convolution, const nn::BatchNormPtr& norm) {
  list.register_module(std::to_string(number), convolution);
  list.register_module(std::to_string(number + 1), norm);
  return {std::move(convolution), norm};
}

std::shared_ptr<nn::Conv2d> depthwise(int64_t channels, int64_t stride) {
  return std::make_shared<nn::Conv2d>(channels, channels, 3, nn::Conv2dOptions{.stride = stride, .padding = 1, .groups = channels});
}

// Interleaves the channels of both halves.
torch::Tensor shuffle_channels(const torch::Tensor& x) {
  const auto half = x.size(1) / 2;
  if (x.suggest_memory_format() != torch::MemoryFormat::ChannelsLast) return x.unflatten(1, {2, half}).transpose(1, 2).flatten(1, 2);
  // Permuting to NHWC, the order in memory, makes the result channels_last too.
  return x.permute({0, 2, 3, 1}).unflatten(3, {2, half}).transpose(3, 4).flatten(3, 4).permute({0, 3, 1, 2});
}

// With stride 1, the first half of the channels passes unchanged, and the second half is convolved. With a larger stride, each half of the
// output is computed from all input channels, with convolutions of its own.
class ShuffleBlock : public torch::nn::Module {
 public:
  ShuffleBlock(int64_t in_channels, int64_t out_channels, int64_t stride, const nn::NormFactory& norm) : is_strided_(stride > 1) {
    const auto half = out_channels / 2;
    auto branch1 = register_module("branch1", std::make_shared<torch::nn::Module>());
    auto branch2 = register_module("branch2", std::make_shared<torch::nn::Module>());
    if (is_strided_) {
      first_depthwise_ = add_to(*branch1, 0, depthwise(in_channels, stride), norm(in_channels));
      first_pointwise_ = add_to(*branch1, 2, nn::conv1x1(in_channels, half), norm(half));
    }
    expansion_ = add_to(*branch2, 0, nn::conv1x1(is_strided_ ? in_channels : half, half), norm(half));
    depthwise_ = add_to(*branch2, 3, depthwise(half, stride), norm(half));
    projection_ = add_to(*branch2, 5, nn::conv1x1(half, half), norm(half));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    if (is_strided_) return join(first_pointwise_.forward_relu(first_depthwise_.forward(x)), x);
    const auto half = x.size(1) / 2;
    return join(x.slice(1, 0, half), x.slice(1, half));
  }

 private:
  torch::Tensor join(const torch::Tensor& first, const torch::Tensor& x) const {
    const auto second = projection_.forward_relu(depthwise_.forward(expansion_.forward_relu(x)));
    return shuffle_channels(at::cat({first, second}, 1));
  }

  bool is_strided_;
  ListedConvNorm first_depthwise_, first_pointwise_, expansion_, depthwise_, projection_;
};

class ShuffleNet : public BackboneModel {
 public:
  ShuffleNet(const ImageClassifierOptions& options, const BuildContext& context) : BackboneModel(options) {
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

  torch::Tensor forward_features(const torch::Tensor& x) override {
    auto y = at::max_pool2d(conv1_->forward(x), /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    for (auto& stage : stages_) y = stage->forward(y);
    return conv5_->forward(y).mean({2, 3});
  }
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
