#pragma once
// Blocks that families of networks share, with torchvision's parameter names.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "nn/layers.h"
#include "trainer/error.h"
#include "trainer/model.h"
#include "trainer/nn.h"
#include "trainer/torch.h"

namespace trainer::models {

// The nearest multiple of `divisor` that is at least `divisor` and at least 90 % of `value`.
int64_t make_divisible(double value, int64_t divisor);

struct ConvNormOptions {
  int64_t kernel_size = 3;
  int64_t stride = 1;
  int64_t groups = 1;
  nn::Activation activation = nn::Activation::kRelu;
  nn::BatchNormOptions norm = {};
};

// torchvision.ops.Conv2dNormActivation: a convolution without bias that keeps the size (or divides it by the stride), batch normalisation
// and an activation. Its children are "0" and "1".
class ConvNorm : public torch::nn::Module {
 public:
  ConvNorm(int64_t in_channels, int64_t out_channels, const ConvNormOptions& options, const nn::NormFactory& norm);
  torch::Tensor forward(const torch::Tensor& x);
  nn::NormalisedConvolution layers() { return {*convolution_, *norm_, activation_}; }

 private:
  nn::Activation activation_;
  std::shared_ptr<nn::Conv2d> convolution_;
  nn::BatchNormPtr norm_;
};

struct InvertedResidualOptions {
  int64_t in_channels = 0;
  int64_t expanded_channels = 0;  // equal to in_channels: no expansion
  int64_t out_channels = 0;
  int64_t kernel_size = 3;
  int64_t stride = 1;
  int64_t squeezed_channels = 0;  // of the SqueezeExcitation; 0: none
  nn::Activation activation = nn::Activation::kRelu6;
  nn::Activation squeeze_activation = nn::Activation::kRelu;
  nn::Activation scale_activation = nn::Activation::kSigmoid;
  nn::BatchNormOptions norm = {};
  bool is_fused = false;  // whether the expansion and the depthwise convolution are one convolution
  double drop_path = 0;
  std::string children = "block";  // name of the list of layers
  bool lists_projection = false;   // whether the projection's convolution and norm are separate children, as in MobileNetV2
};

// The block of MobileNetV2, MobileNetV3 and EfficientNet: an expansion by a 1x1 convolution, a depthwise convolution and a projection
// without activation, added to the input if the shape is the same.
class InvertedResidual : public torch::nn::Module {
 public:
  InvertedResidual(const InvertedResidualOptions& options, const BuildContext& context);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  bool is_residual_;
  bool expands_;           // the first two layers are the expansion and the depthwise convolution
  bool lists_projection_;  // the last two layers are the projection's convolution and its norm
  torch::nn::Sequential layers_;
  std::shared_ptr<nn::DropPath> drop_path_;
};

// An activation as a module, so that a list of layers can contain it.
class ActivationLayer : public torch::nn::Module {
 public:
  explicit ActivationLayer(nn::Activation activation) : activation_(activation) {}
  torch::Tensor forward(const torch::Tensor& x) { return nn::activate(x, activation_); }
  nn::Activation activation() const { return activation_; }

 private:
  nn::Activation activation_;
};

// Layers in sequence. A convolution, its normalisation and the activation that are separate layers are computed together, also with those
// before a depthwise convolution.
class LayerChain : public torch::nn::Module {
 public:
  // `has_maps`: whether its output is an image.
  void add(const std::string& name, torch::nn::AnyModule layer, bool has_maps = false);
  // Named with its number.
  template <class Layer>
  void push_back(std::shared_ptr<Layer> layer) {
    add(std::to_string(layers_.size()), torch::nn::AnyModule(std::move(layer)));
  }

  torch::Tensor forward(const torch::Tensor& x) { return run(x, 0, layers_.size()); }
  torch::Tensor forward_maps(const torch::Tensor& x) { return run(x, 0, maps_end()); }
  torch::Tensor pool_maps(const torch::Tensor& maps) { return run(maps, maps_end(), head_begin()); }
  torch::Tensor forward_head(const torch::Tensor& features) { return run(features, head_begin(), layers_.size()); }

 private:
  // Not of a derived class, whose forward() may differ.
  template <class Layer>
  bool is(size_t i) const {
    return i < layers_.size() && layers_[i].type_info() == typeid(Layer);
  }
  // The activation that is computed with layer i, a normalisation; empty for another layer.
  std::optional<nn::Activation> activation_of_norm(size_t i) const;
  // Layer i, a convolution, and the normalisation after it; empty for other layers.
  std::optional<nn::NormalisedConvolution> normalised_convolution(size_t i);
  torch::Tensor run(torch::Tensor x, size_t begin, size_t end);
  // The head begins with the last layer with parameters and what is computed together with it, or the dropout before them.
  size_t head_begin() const;
  // After the last layer whose output is an image, but not in the head. At the head's beginning if there are no such layers.
  size_t maps_end() const { return num_to_maps_ == 0 ? head_begin() : std::min(num_to_maps_, head_begin()); }

  size_t num_to_maps_ = 0;  // number of layers up to the last one whose output is an image

 protected:
  std::vector<torch::nn::AnyModule> layers_;
};

// Makes the layers of a chain children of `parent`.
void register_layers(torch::nn::Module& parent, const LayerChain& chain);

// A LayerNorm over the channels of [N, C, H, W].
class ChannelNorm : public nn::LayerNorm {
 public:
  using LayerNorm::LayerNorm;
  torch::Tensor forward(const torch::Tensor& x) { return forward_channels(x); }
};

// The mean of each channel: [N, C, H, W] to [N, C].
torch::Tensor average_channels(const torch::Tensor& x);

// Sets normal weights with a standard deviation of 0.01 and zero biases in every linear layer below `network`.
void init_linear_layers(const torch::nn::Module& network, const at::Generator& generator);

// Blocks in sequence, of which the first one changes the number of channels and has the stride.
template <class Block, class... Arguments>
torch::nn::Sequential make_stage(int64_t num_blocks, int64_t in_channels, int64_t channels, int64_t stride, const Arguments&... arguments) {
  torch::nn::Sequential stage(std::make_shared<Block>(in_channels, channels, stride, arguments...));
  for (int64_t i = 1; i < num_blocks; ++i) stage->push_back(std::make_shared<Block>(channels, channels, 1, arguments...));
  return stage;
}

// Sets PyTorch's initial values for each layer of this type below `network`, in the order of its modules.
template <class Layer>
void init_as_pytorch(const torch::nn::Module& network, const at::Generator& generator) {
  for (auto* layer : nn::layers_of<Layer>(network)) nn::default_uniform_(layer->weight, layer->bias, generator);
}

// A network of torchvision's form: "features", whose channels are averaged, and "classifier". The constructor of the derived class
// registers both.
class FeatureClassifier : public FeatureMapModel {
 public:
  using FeatureMapModel::FeatureMapModel;
  torch::Tensor forward_maps(const torch::Tensor& x) override { return features_->forward(x); }
  torch::Tensor forward_head(const torch::Tensor& features) override { return classifier_->forward(features); }

 protected:
  torch::nn::Sequential features_, classifier_;
};

inline void describe_drop_path(KeyTable& keys, double& drop_path,
                               const char* doc =
                                   "Probability of dropping the residual branch of a block for a sample (stochastic depth); it rises from "
                                   "0 in the first block to about this value in the last.") {
  keys.add("drop_path", drop_path, {.min = 0.0, .max = 1.0, .max_excluded = true, .doc = doc});
}

// The keys of networks for images of any size.
struct ImageClassifierOptions : ClassifierOptions {
  void describe(KeyTable& keys) {
    describe_num_classes(keys);
    describe_in_channels(keys);
  }
  std::vector<int64_t> input_shape() const override { return {num_channels(), -1, -1}; }
};

// Adds the key `dropout`, for networks with dropout before the last layer. `kDropout`: its default.
template <double kDropout>
struct DropoutOptions : ImageClassifierOptions {
  double dropout = kDropout;

  void describe(KeyTable& keys) {
    ImageClassifierOptions::describe(keys);
    keys.add("dropout", dropout,
             {.min = 0.0, .max = 1.0, .max_excluded = true, .doc = "Probability of dropping a feature before the last layer."});
  }
};

// Adds the key `drop_path`, for networks that also drop residual branches. `kDropPath`: its default.
template <double kDropout, double kDropPath>
struct DropPathOptions : DropoutOptions<kDropout> {
  double drop_path = kDropPath;

  void describe(KeyTable& keys) {
    DropoutOptions<kDropout>::describe(keys);
    describe_drop_path(keys, drop_path);
  }
};

// Helpers for the layers of an experiment file's list.

inline constexpr const char* kDropPathOfLayer = "Probability, per sample in training, of dropping the values that are added to the input.";

inline constexpr int64_t kMostChannels = 1 << 20;

// Returns {channels, height, width}. Throws UsageError if the input is not an image.
const std::vector<int64_t>& require_image(const LayerContext& context);
// The output shape of a sliding window. Throws UsageError if the window is larger than the padded image.
std::vector<int64_t> slide(const LayerContext& context, int64_t channels, int64_t kernel_size, int64_t stride, int64_t padding);

const Choices<nn::Activation>& activation_choices();

inline void describe_channels(KeyTable& keys, int64_t& channels) {
  keys.add("channels", channels, {.min = 1, .max = kMostChannels, .doc = "Number of output channels.", .required = true});
}
inline void describe_kernel(KeyTable& keys, int64_t& kernel_size) {
  keys.add("kernel_size", kernel_size, {.min = 1, .max = 1024, .unit = "pixels", .doc = "Height and width of the window."});
}
inline void describe_stride(KeyTable& keys, int64_t& stride) {
  keys.add("stride", stride, {.min = 1, .max = 1024, .unit = "pixels", .doc = "Distance between two windows."});
}
inline void describe_groups(KeyTable& keys, int64_t& groups,
                            const char* doc = "Number of groups into which input and output channels are divided.") {
  keys.add("groups", groups, {.min = 1, .max = kMostChannels, .doc = doc});
}

struct ConvolutionOptions : LayerOptions {
  int64_t kernel_size = 3;
  int64_t stride = 1;
  Auto<int64_t> padding = {};

  void describe(KeyTable& keys) {
    describe_kernel(keys, kernel_size);
    describe_stride(keys, stride);
    keys.add("padding", padding,
             {.min = 0,
              .max = 1024,
              .unit = "pixels",
              .doc = "Zeros added to each side; auto: (kernel_size - 1) / 2, rounded down, so that an odd kernel with stride 1 keeps the "
                     "size."});
    LayerOptions::describe(keys);
  }
};

inline void describe_expansion(KeyTable& keys, int64_t& expansion) {
  keys.add("expansion", expansion, {.min = 1, .max = 64, .doc = "Ratio of the depthwise convolution's channels to the input's."});
}

Layer make_inverted_residual(const InvertedResidualOptions& options, const LayerContext& context);

// The keys of blocks that can have a stride.
struct BlockOptions : LayerOptions {
  int64_t channels = 0;
  int64_t stride = 1;

  void describe(KeyTable& keys) {
    describe_channels(keys, channels);
    describe_stride(keys, stride);
    LayerOptions::describe(keys);
  }
};

}  // namespace trainer::models
