// The network of Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (2024), in the variant of its author's program
// airbench94_muon: a first layer with fixed weights, which whitens patches of 2×2 pixels, and six convolutions whose first filters start as
// the identity.

#include <algorithm>

#include "models/model_registry.h"
#include "nn/layers.h"
#include "trainer/nn.h"

namespace trainer::models {
namespace {

constexpr int64_t kPatchSize = 2;
constexpr int64_t kPatchValues = 3 * kPatchSize * kPatchSize;
constexpr int64_t kWhitenedChannels = 2 * kPatchValues;
constexpr int64_t kWhiteningImages = 5000;
// Added to the eigenvalues, so that directions in which patches hardly vary are not amplified too much.
constexpr double kWhiteningEps = 5e-4;
constexpr double kOutputScale = 1.0 / 256;
// A high momentum, so that the running statistics follow a short training.
constexpr nn::BatchNormOptions kNormOptions{.eps = 1e-12, .momentum = 0.4, .learns_weight = false};

struct AirbenchOptions : ClassifierOptions {
  std::vector<int64_t> widths = {64, 256, 256};

  void describe(KeyTable& keys) {
    describe_num_classes(keys);
    keys.add("widths", widths, {.min = 1, .doc = "Number of channels of each of the three blocks."});
    keys.refuse("widths", [this]() -> std::string {
      return widths.size() == 3 ? "" : c10::str("[", c10::Join(", ", widths), "] has ", widths.size(), " values; give three");
    });
  }
  std::vector<int64_t> input_shape() const override { return {3, 32, 32}; }
};

// A convolution of 2×2 patches whose weight is computed from data and not trained, followed by GELU. Before the bias, over the patches of
// the data, the first 12 channels are uncorrelated with a variance of about 1; the other channels are their negatives.
class Whitening : public torch::nn::Module {
 public:
  explicit Whitening(const at::Generator& generator) {
    const auto identity = torch::eye(kPatchValues);
    weight_ = register_buffer("weight", to_filters(identity));
    bias_ = register_parameter("bias", torch::empty({kWhitenedChannels}));
    // The bias gets the initial values of an ordinary layer; the weights that are drawn with the bias are discarded.
    nn::default_uniform_(weight_.clone(), bias_, generator);
  }

  torch::Tensor forward(const torch::Tensor& x) { return at::gelu(nn::observed(*this, at::conv2d(x, weight_, bias_))); }

  // `images`: [N, 3, H, W] on the CPU.
  void fit(const torch::Tensor& images) {
    const torch::NoGradGuard no_grad;
    auto moments = torch::zeros({kPatchValues, kPatchValues}, torch::kFloat64);
    int64_t num_patches = 0;
    // In parts, because the patches of all images would take hundreds of megabytes.
    for (const auto& part : images.split(500)) {
      const auto patches = part.to(torch::kFloat64).unfold(2, kPatchSize, 1).unfold(3, kPatchSize, 1);
      const auto rows = patches.permute({0, 2, 3, 1, 4, 5}).reshape({-1, kPatchValues});
      moments.addmm_(rows.t(), rows);
      num_patches += rows.size(0);
    }
    const auto [eigenvalues, eigenvectors] = at::linalg_eigh(moments / num_patches);
    const auto filters = eigenvectors.t() / (eigenvalues + kWhiteningEps).sqrt().unsqueeze(1);
    weight_.copy_(to_filters(filters.flip(0)));
  }

 private:
  static torch::Tensor to_filters(const torch::Tensor& rows) { return torch::cat({rows, -rows}).view({-1, 3, kPatchSize, kPatchSize}); }

  torch::Tensor weight_, bias_;
};

std::shared_ptr<nn::Conv2d> make_identity_convolution(int64_t in_channels, int64_t out_channels, const at::Generator& generator) {
  auto convolution = nn::conv3x3(in_channels, out_channels);
  nn::default_uniform_(convolution->weight, {}, generator);
  const torch::NoGradGuard no_grad;
  torch::nn::init::dirac_(convolution->weight.narrow(0, 0, std::min(in_channels, out_channels)));
  return convolution;
}

class AirbenchBlock : public torch::nn::Module {
 public:
  AirbenchBlock(int64_t in_channels, int64_t channels, const BuildContext& context) {
    conv1_ = register_module("conv1", make_identity_convolution(in_channels, channels, context.init_generator));
    norm1_ = register_module("norm1", context.norm(channels, kNormOptions));
    conv2_ = register_module("conv2", make_identity_convolution(channels, channels, context.init_generator));
    norm2_ = register_module("norm2", context.norm(channels, kNormOptions));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = at::gelu(norm1_->forward(at::max_pool2d(conv1_->forward(x), /*kernel_size=*/2)));
    return at::gelu(norm2_->forward(conv2_->forward(y)));
  }

 private:
  std::shared_ptr<nn::Conv2d> conv1_, conv2_;
  nn::BatchNormPtr norm1_, norm2_;
};

class Airbench : public FeatureMapModel {
 public:
  Airbench(const AirbenchOptions& options, const BuildContext& context) : FeatureMapModel(options) {
    whiten_ = register_module("whiten", std::make_shared<Whitening>(context.init_generator));
    int64_t channels = kWhitenedChannels;
    for (const int64_t width : options.widths) {
      blocks_.push_back(register_module(c10::str("block", blocks_.size() + 1), std::make_shared<AirbenchBlock>(channels, width, context)));
      channels = width;
    }
    head_ = register_module("head", std::make_shared<nn::Linear>(channels, options.num_outputs(), /*has_bias=*/false));
    nn::default_uniform_(head_->weight, {}, context.init_generator);
    const torch::NoGradGuard no_grad;
    head_->weight.div_(head_->weight.std());
  }

  torch::Tensor forward_maps(const torch::Tensor& x) override {
    auto y = whiten_->forward(x);
    for (const auto& block : blocks_) y = block->forward(y);
    return y;
  }
  torch::Tensor pool_maps(const torch::Tensor& maps) override { return at::max_pool2d(maps, /*kernel_size=*/3).flatten(1); }
  torch::Tensor forward_head(const torch::Tensor& features) override { return head_->forward(features) * kOutputScale; }

  int64_t num_fitted_images() const override { return kWhiteningImages; }
  void fit(const torch::Tensor& images) override { whiten_->fit(images); }

 private:
  std::shared_ptr<Whitening> whiten_;
  std::vector<std::shared_ptr<AirbenchBlock>> blocks_;
  std::shared_ptr<nn::Linear> head_;
};

}  // namespace

void add_airbench(ModelRegistry& registry) {
  add_model<Airbench, AirbenchOptions>(registry, "airbench",
                                       "A small network for fast training on 32×32 images (Jordan 2024), 2 million parameters.");
}

}  // namespace trainer::models
