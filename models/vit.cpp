// The vision transformer (Dosovitskiy et al. 2021) with torchvision's names, shapes and initial values
// (torchvision/models/vision_transformer.py), and the vision transformers of DeiT (Touvron et al. 2021) and DINOv2 (Oquab et al. 2023) with
// timm's (timm/models/vision_transformer.py).

#include <fmt/format.h>
#include <torch/nn/modules/activation.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/blocks.h"
#include "models/model_registry.h"

namespace trainer::models {
namespace {

constexpr double kVitEps = 1e-6;

template <int64_t kPatch>
struct VitOptions : ClassifierOptions {
  int64_t image_size = 224;
  double dropout = 0.0;

  void describe(KeyTable& keys) {
    describe_num_classes(keys);
    describe_in_channels(keys);
    keys.add("image_size", image_size, {.min = kPatch, .doc = fmt::format("Height and width of the images, a multiple of {}.", kPatch)});
    // Resuming compares the shapes of the tensors instead.
    keys.set_facts("image_size", {.affects_features = true});
    keys.add("dropout", dropout,
             {.min = 0.0,
              .max = 1.0,
              .max_excluded = true,
              .doc = "Probability of dropping a value after the position embedding and each part of a block."});
    keys.refuse("image_size", [this]() -> std::string {
      return image_size % kPatch == 0
                 ? ""
                 : fmt::format("{} is not a multiple of {}, the size of a patch; choose a multiple", image_size, kPatch);
    });
  }
  std::vector<int64_t> input_shape() const override { return {num_channels(), image_size, image_size}; }
};

struct VitDesign {
  int64_t num_layers, num_heads, num_features, hidden;
  int64_t num_registers = 0;
  bool has_layer_scale = false;
};

class EncoderBlock : public torch::nn::Module {
 public:
  EncoderBlock(const VitDesign& design, double dropout, const BuildContext& context) {
    const auto features = design.num_features;
    const auto make_dropout = [&] { return std::make_shared<nn::Dropout>(dropout, context.dropout_generator); };
    ln_1_ = register_module("ln_1", std::make_shared<nn::LayerNorm>(features, kVitEps));
    attention_ = register_module("self_attention", std::make_shared<nn::SelfAttention>(features, design.num_heads));
    dropout_ = register_module("dropout", make_dropout());
    ln_2_ = register_module("ln_2", std::make_shared<nn::LayerNorm>(features, kVitEps));
    mlp_ = register_module("mlp",
                           torch::nn::Sequential(std::make_shared<nn::Linear>(features, design.hidden), torch::nn::GELU(), make_dropout(),
                                                 std::make_shared<nn::Linear>(design.hidden, features), make_dropout()));
    const auto xavier = [&](const torch::Tensor& weight) {
      nn::uniform_(weight, std::sqrt(6.0 / static_cast<double>(weight.size(0) + weight.size(1))), context.init_generator);
    };
    xavier(attention_->in_proj_weight);
    torch::nn::init::zeros_(attention_->in_proj_bias);
    nn::default_uniform_(attention_->out_proj->weight, {}, context.init_generator);
    torch::nn::init::zeros_(attention_->out_proj->bias);
    for (auto* linear : nn::layers_of<nn::Linear>(*mlp_)) {
      xavier(linear->weight);
      nn::normal_(linear->bias, 0, 1e-6, context.init_generator);
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = dropout_->forward(attention_->forward(ln_1_->forward(x))) + x;
    return y + mlp_->forward(ln_2_->forward(y));
  }

 private:
  std::shared_ptr<nn::LayerNorm> ln_1_, ln_2_;
  std::shared_ptr<nn::SelfAttention> attention_;
  std::shared_ptr<nn::Dropout> dropout_;
  torch::nn::Sequential mlp_;
};

// The common part of Vit and Deit.
class VisionTransformer : public FeatureMapModel {
 public:
  using FeatureMapModel::FeatureMapModel;
  torch::Tensor forward_maps(const torch::Tensor& x) override {
    const auto patches = patches_->forward(x).flatten(2).transpose(1, 2);
    const auto of_each = [&](const torch::Tensor& tokens) { return tokens.expand_as(patches.slice(1, 0, tokens.size(1))); };
    auto y = registers_.defined() ? at::cat({of_each(class_token_), of_each(registers_), patches + positions_}, 1)
                                  : at::cat({of_each(class_token_), patches}, 1) + positions_;
    y = dropout_->forward(y);
    for (auto block = blocks_->begin(); block != blocks_->end() - 1; ++block) y = block->forward(y);
    return y;
  }
  torch::Tensor pool_maps(const torch::Tensor& maps) override { return norm_->forward((blocks_->end() - 1)->forward(maps)).select(1, 0); }
  torch::Tensor forward_head(const torch::Tensor& features) override { return head_->forward(features); }
  bool prefers_channels_last() const override { return false; }

 protected:
  torch::Tensor class_token_, positions_;
  torch::Tensor registers_;  // undefined without any; the class and the registers then have no position
  std::shared_ptr<nn::Conv2d> patches_;
  std::shared_ptr<nn::Dropout> dropout_;
  torch::nn::Sequential blocks_;
  std::shared_ptr<nn::LayerNorm> norm_;
  std::shared_ptr<nn::Linear> head_;
};

class Vit : public VisionTransformer {
 public:
  static constexpr int64_t kPatch = 16;

  Vit(const VitDesign& design, const VitOptions<kPatch>& options, const BuildContext& context) : VisionTransformer(options) {
    const auto features = design.num_features;
    const int64_t side = options.image_size / kPatch;
    class_token_ = register_parameter("class_token", torch::zeros({1, 1, features}));
    patches_ = register_module("conv_proj", std::make_shared<nn::Conv2d>(options.num_channels(), features, kPatch,
                                                                         nn::Conv2dOptions{.stride = kPatch, .bias = true}));
    auto encoder = register_module("encoder", std::make_shared<torch::nn::Module>());
    positions_ = encoder->register_parameter("pos_embedding", torch::empty({1, side * side + 1, features}));
    dropout_ = encoder->register_module("dropout", std::make_shared<nn::Dropout>(options.dropout, context.dropout_generator));
    for (int64_t i = 0; i < design.num_layers; ++i) {
      blocks_->push_back("encoder_layer_" + std::to_string(i), std::make_shared<EncoderBlock>(design, options.dropout, context));
    }
    encoder->register_module("layers", blocks_);
    norm_ = encoder->register_module("ln", std::make_shared<nn::LayerNorm>(features, kVitEps));
    auto heads = register_module("heads", std::make_shared<torch::nn::Module>());
    head_ = heads->register_module("head", std::make_shared<nn::Linear>(features, options.num_outputs()));
    nn::normal_(positions_, 0, 0.02, context.init_generator);
    const auto fan_in = static_cast<double>(patches_->weight.numel() / features);
    nn::truncated_normal_(patches_->weight, std::sqrt(1 / fan_in), context.init_generator);
    torch::nn::init::zeros_(patches_->bias);
    torch::nn::init::zeros_(head_->weight);
    torch::nn::init::zeros_(head_->bias);
  }
};

template <int64_t kPatch>
struct DeitOptions : VitOptions<kPatch> {
  double drop_path = 0.0;

  void describe(KeyTable& keys) {
    VitOptions<kPatch>::describe(keys);
    describe_drop_path(keys, drop_path);
  }
};

class DeitBlock : public torch::nn::Module {
 public:
  DeitBlock(const VitDesign& design, double dropout, double drop_path, const BuildContext& context) {
    const auto features = design.num_features;
    norm1_ = register_module("norm1", std::make_shared<nn::LayerNorm>(features, kVitEps));
    const auto names = nn::SelfAttention::Names::kTimm;
    attention_ = register_module("attn", std::make_shared<nn::SelfAttention>(features, design.num_heads, names));
    norm2_ = register_module("norm2", std::make_shared<nn::LayerNorm>(features, kVitEps));
    auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>());
    fc1_ = mlp->register_module("fc1", std::make_shared<nn::Linear>(features, design.hidden));
    fc2_ = mlp->register_module("fc2", std::make_shared<nn::Linear>(design.hidden, features));
    dropout_ = register_module("drop", std::make_shared<nn::Dropout>(dropout, context.dropout_generator));
    if (design.has_layer_scale) {
      constexpr double kFirstScale = 1e-5;
      const auto make_scale = [&](const char* name) {
        auto holder = register_module(name, std::make_shared<torch::nn::Module>());
        return holder->register_parameter("gamma", torch::full({features}, kFirstScale));
      };
      scale1_ = make_scale("ls1");
      scale2_ = make_scale("ls2");
    }
    drop_path_ = register_module("drop_path", std::make_shared<nn::DropPath>(drop_path, context.dropout_generator));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto scaled = [](const torch::Tensor& z, const torch::Tensor& scale) { return scale.defined() ? z * scale : z; };
    const auto y = x + drop_path_->forward(scaled(dropout_->forward(attention_->forward(norm1_->forward(x))), scale1_));
    const auto hidden = dropout_->forward(at::gelu(fc1_->forward(norm2_->forward(y))));
    return y + drop_path_->forward(scaled(dropout_->forward(fc2_->forward(hidden)), scale2_));
  }

 private:
  torch::Tensor scale1_, scale2_;  // undefined without layer scale
  std::shared_ptr<nn::LayerNorm> norm1_, norm2_;
  std::shared_ptr<nn::SelfAttention> attention_;
  std::shared_ptr<nn::Linear> fc1_, fc2_;
  std::shared_ptr<nn::Dropout> dropout_;
  std::shared_ptr<nn::DropPath> drop_path_;
};

template <int64_t kPatch>
class Deit : public VisionTransformer {
 public:
  Deit(const VitDesign& design, const DeitOptions<kPatch>& options, const BuildContext& context) : VisionTransformer(options) {
    const auto features = design.num_features;
    const int64_t side = options.image_size / kPatch;
    class_token_ = register_parameter("cls_token", torch::empty({1, 1, features}));
    if (design.num_registers > 0) registers_ = register_parameter("reg_token", torch::empty({1, design.num_registers, features}));
    positions_ = register_parameter("pos_embed", torch::empty({1, side * side + (design.num_registers > 0 ? 0 : 1), features}));
    auto embedding = register_module("patch_embed", std::make_shared<torch::nn::Module>());
    const nn::Conv2dOptions patch{.stride = kPatch, .bias = true};
    patches_ = embedding->register_module("proj", std::make_shared<nn::Conv2d>(options.num_channels(), features, kPatch, patch));
    dropout_ = register_module("pos_drop", std::make_shared<nn::Dropout>(options.dropout, context.dropout_generator));
    for (int64_t i = 0; i < design.num_layers; ++i) {
      const double drop_path = options.drop_path * static_cast<double>(i) / static_cast<double>(design.num_layers - 1);
      blocks_->push_back(std::make_shared<DeitBlock>(design, options.dropout, drop_path, context));
    }
    register_module("blocks", blocks_);
    norm_ = register_module("norm", std::make_shared<nn::LayerNorm>(features, kVitEps));
    head_ = register_module("head", std::make_shared<nn::Linear>(features, options.num_outputs()));
    nn::normal_(class_token_, 0, 1e-6, context.init_generator);
    if (registers_.defined()) nn::normal_(registers_, 0, 1e-6, context.init_generator);
    nn::truncated_normal_(positions_, 0.02, context.init_generator);
    nn::default_uniform_(patches_->weight, patches_->bias, context.init_generator);
    for (auto* linear : nn::layers_of<nn::Linear>(*this)) {
      nn::truncated_normal_(linear->weight, 0.02, context.init_generator);
      torch::nn::init::zeros_(linear->bias);
    }
  }
};

}  // namespace

void add_vit(ModelRegistry& registry) {
  add_model<Vit, VitOptions<16>>(registry, "vit_b_16", "torchvision's vit_b_16, 86.6 million parameters.",
                                 VitDesign{.num_layers = 12, .num_heads = 12, .num_features = 768, .hidden = 3072});
  const VitDesign small{.num_layers = 12, .num_heads = 6, .num_features = 384, .hidden = 1536};
  add_model<Deit<16>, DeitOptions<16>>(registry, "vit_s_16", "timm's vit_small_patch16_224, 22.1 million parameters.", small);
  VitDesign design = small;
  design.has_layer_scale = true;
  const auto add_dinov2 = [&](const char* name, const char* doc) { add_model<Deit<14>, DeitOptions<14>>(registry, name, doc, design); };
  add_dinov2("dinov2_s_14", "timm's vit_small_patch14_dinov2, 21.7 million parameters.");
  design.num_registers = 4;
  add_dinov2("dinov2_reg4_s_14", "timm's vit_small_patch14_reg4_dinov2, 21.7 million parameters.");
  design = {.num_layers = 12, .num_heads = 12, .num_features = 768, .hidden = 3072, .has_layer_scale = true};
  add_dinov2("dinov2_b_14", "timm's vit_base_patch14_dinov2, 85.8 million parameters.");
  design.num_registers = 4;
  add_dinov2("dinov2_reg4_b_14", "timm's vit_base_patch14_reg4_dinov2, 85.8 million parameters.");
}

}  // namespace trainer::models
