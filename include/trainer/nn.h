#pragma once
// The layers of the built-in networks, with kernels that are faster than LibTorch's on the CPU; batch normalisation over the joined batch
// of all ranks (torch.nn.SyncBatchNorm, also on the CPU); initial values from a given generator; losses. Parameter names are PyTorch's.

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/component.h"
#include "trainer/distributed.h"
#include "trainer/error.h"

namespace trainer::nn {

namespace convolution {
enum class Tile : int64_t;
struct Padding;
}  // namespace convolution
enum class FusedActivation;
class FixedConvolution;
struct NormalisedConvolution;
namespace fused_norm {
class GpuKernels;
struct Layer;
struct Folded;
}  // namespace fused_norm

// torch.nn.SyncBatchNorm.convert_sync_batch_norm(): from now on, in training, each torch::nn::BatchNorm1d, BatchNorm2d and BatchNorm3d in
// the tree of `module` normalises the batches of all ranks of the group as one batch. The modules are modified in place, because a C++
// network holds its layers in members: their type, parameters, buffers and names do not change. Outputs, gradients and running statistics
// are those of one rank with the joined batch; the statistics have the same bits on all ranks. In evaluation, and in a group of one rank,
// nothing changes.
// Collective in training: every rank must call forward with its part of the batch, and then backward. The part may be empty (on a GPU,
// except on the first rank) but must not have only one value per channel, because LibTorch's layers throw on that rank. forward runs one
// collective, and backward another one if the input needs a gradient. If DistributedDataParallel exchanges the gradients at the same time,
// use a separate group (Context::new_group()). The group is not kept alive: its Context must outlive the training. Throws UsageError for a
// null group and for a layer with neither weight nor running statistics. A layer stays converted after to(), but not after clone() or when
// its weight is replaced by another tensor. Second derivatives and torch::InferenceMode in training are not supported; layers of torch::jit
// modules are not converted. `module` itself is converted if it is a batch normalisation in a std::shared_ptr.
void convert_sync_batch_norm(torch::nn::Module& module, std::shared_ptr<const distributed::ProcessGroup> group);

enum class Activation { kNone, kRelu, kRelu6, kHardswish, kSilu, kGelu, kSigmoid, kHardsigmoid };
torch::Tensor activate(const torch::Tensor& x, Activation activation);

// The options of torch.nn.BatchNorm2d, with its defaults.
struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // empty: the running statistics are the plain average over all batches
  bool learns_weight = true;             // false: the weight stays 1 and is a buffer instead of a parameter
};

// Normalises [N, C, H, W] over N, H, W. Parameter and buffer names are PyTorch's: weight, bias, running_mean, running_var,
// num_batches_tracked. Semantics of torch.nn.BatchNorm2d (affine, tracking running statistics).
class BatchNorm2d : public torch::nn::Module {
 public:
  // `group`: in training, normalises the batches of its ranks as one batch, which is collective; null: the batch of this rank.
  explicit BatchNorm2d(int64_t num_channels, const BatchNormOptions& options = {},
                       std::shared_ptr<const distributed::ProcessGroup> group = nullptr);
  // Throws UsageError in training if a channel has only one value, because its variance is undefined. An empty batch gives an empty output
  // and zero gradients, and does not change the running statistics.
  torch::Tensor forward(const torch::Tensor& x) { return apply(x, {}, Activation::kNone); }
  // activate(forward(x), activation).
  torch::Tensor forward_activated(const torch::Tensor& x, Activation activation) { return apply(x, {}, activation); }
  // relu(forward(x) + residual), with nothing added if `residual` is undefined.
  torch::Tensor forward_relu(const torch::Tensor& x, const torch::Tensor& residual = {}) { return apply(x, residual, Activation::kRelu); }
  // From now on uses one operator (nn/fused_norm) for normalisation, addition and activation, if it supports the input. `gpu`: for internal
  // use.
  void use_fused_operator(std::shared_ptr<const fused_norm::GpuKernels> gpu = nullptr) {
    is_fused_ = true;
    gpu_ = std::move(gpu);
  }
  bool uses_fused_operator() const { return is_fused_; }
  // For internal use: a convolution with this weight and this bias, which may be undefined, and then this layer in evaluation, as one
  // convolution.
  fused_norm::Folded fold(const torch::Tensor& weight, const torch::Tensor& bias) const;

  // num_batches_tracked stays int64, as in Python's Module.to and unlike LibTorch's.
  using torch::nn::Module::to;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

  // From now on the layer stays in evaluation even if its network is in training: it uses its running statistics and does not change them.
  void freeze_statistics();
  void train(bool on = true) override;

  // Whether the running statistics are the average over all batches (without a momentum).
  bool averages_all_batches() const { return !options_.momentum; }
  // Whether batches of several ranks are normalised together.
  bool is_joined() const { return group_ != nullptr; }
  // Sets whether training updates the running statistics and num_batches_tracked; the default is true.
  void set_updates_statistics(bool updates) { updates_statistics_ = updates; }

  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  friend torch::Tensor convolve_normalise_twice(const NormalisedConvolution& first, const NormalisedConvolution& depthwise,
                                                const torch::Tensor& x);

  torch::Tensor normalise(const torch::Tensor& x);
  // The weight of the next batch in the running statistics.
  double next_batch_weight() const;
  void count_batch();
  // The running mean and variance that a training batch updates: copies if the batch must not change the layer's own.
  std::pair<torch::Tensor, torch::Tensor> statistics_to_update() const;
  torch::Tensor apply(const torch::Tensor& x, const torch::Tensor& residual, Activation activation);
  fused_norm::Layer evaluation_layer() const;
  fused_norm::Layer layer_for_batch();
  void check_count(const torch::Tensor& x) const;

  BatchNormOptions options_;
  std::shared_ptr<const distributed::ProcessGroup> group_;  // null: of one rank
  bool is_fused_ = false;
  std::shared_ptr<const fused_norm::GpuKernels> gpu_;
  bool has_frozen_statistics_ = false;
  bool updates_statistics_ = true;
};

using BatchNormPtr = std::shared_ptr<BatchNorm2d>;

// Makes the norm layers of a network, all of the same kind.
class NormFactory {
 public:
  using Make = std::function<BatchNormPtr(int64_t num_channels, const BatchNormOptions& options)>;

  explicit NormFactory(Make make) : make_(std::move(make)) {}
  BatchNormPtr operator()(int64_t num_channels, const BatchNormOptions& options = {}) const { return make_(num_channels, options); }

 private:
  Make make_;
};

struct Conv2dOptions {
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;  // equal to the number of channels: a depthwise convolution
  bool bias = false;
  // TensorFlow's padding SAME in place of `padding`: so much that all strides of the input count, the smaller half at the top and the left.
  bool same_padding = false;
};

// torch.nn.Conv2d with a square kernel and zero padding. Its parameters are not initialised: see default_uniform_ and init_convolutions_
// below.
class Conv2d : public torch::nn::Module {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, Conv2dOptions options = {});
  torch::Tensor forward(const torch::Tensor& input);  // [N, C, H, W]
  // From now on uses this program's own kernels if they are faster: Winograd's algorithm (convolution::fastest_tile) with tiles of at most
  // `largest_tile`, and kernels for the weights' gradient in strided 3×3 convolutions and for both gradients of depthwise convolutions.
  // Empty `largest_tile`: only LibTorch's kernels.
  void use_winograd(std::optional<convolution::Tile> largest_tile) { largest_tile_ = largest_tile; }

  // From now on the weights of this layer and of the normalisation that convolve_normalise() applies after it do not change, so that it
  // prepares them once for evaluation, and uses Winograd's algorithm only for at least 32 tiles. The layer must not be used by several
  // threads at once then.
  void fix_weights() { has_fixed_weights_ = true; }

  // The tile of Winograd's algorithm for this input, which under autocast must already have autocast's type; empty: LibTorch's convolution
  // is used.
  std::optional<convolution::Tile> winograd_tile(const torch::Tensor& x) const;

  torch::Tensor weight;
  torch::Tensor bias;  // undefined without bias

 private:
  friend torch::Tensor convolve_normalise(Conv2d& convolution, BatchNorm2d& norm, const torch::Tensor& x, Activation activation,
                                          const torch::Tensor& residual);
  friend torch::Tensor convolve_normalise_twice(const NormalisedConvolution& first, const NormalisedConvolution& depthwise,
                                                const torch::Tensor& x);
  bool uses_depthwise_kernels() const { return largest_tile_ && groups_ == weight.size(0) && !bias.defined(); }
  convolution::Padding padding_of(const torch::Tensor& x) const;
  // x with TensorFlow's padding SAME, or x itself.
  torch::Tensor padded(const torch::Tensor& x) const;
  // forward() of a padded input with another weight and bias.
  torch::Tensor compute(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) const;

  std::optional<convolution::Tile> largest_tile_;
  bool has_fixed_weights_ = false;
  // With the normalisation; made when they are first needed: by another algorithm than Winograd's, and by that.
  std::array<std::shared_ptr<const FixedConvolution>, 2> fixed_;
  std::shared_ptr<const FixedConvolution> fixed_alone_;  // without a normalisation
  int64_t stride_;
  int64_t padding_;
  int64_t groups_;
  bool has_same_padding_;
};

// The two convolutions of residual networks, without bias; conv3x3 pads by 1.
std::shared_ptr<Conv2d> conv3x3(int64_t in_channels, int64_t out_channels, int64_t stride = 1);
std::shared_ptr<Conv2d> conv1x1(int64_t in_channels, int64_t out_channels, int64_t stride = 1);

// activate(norm(convolution(x)) + residual, activation), with nothing added if `residual` is undefined; with a residual only without an
// activation or with a ReLU. If the normalisation uses its running statistics and the fused operator, it is made part of the convolution:
// on the CPU in float32, and without gradients also where convolution.winograd_tile() is not empty.
torch::Tensor convolve_normalise(Conv2d& convolution, BatchNorm2d& norm, const torch::Tensor& x, Activation activation,
                                 const torch::Tensor& residual = {});
inline torch::Tensor convolve_normalise_relu(Conv2d& convolution, BatchNorm2d& norm, const torch::Tensor& x,
                                             const torch::Tensor& residual = {}) {
  return convolve_normalise(convolution, norm, x, Activation::kRelu, residual);
}

// The layers of convolve_normalise().
struct NormalisedConvolution {
  Conv2d& convolution;
  BatchNorm2d& norm;
  Activation activation = Activation::kNone;

  torch::Tensor forward(const torch::Tensor& x) const { return convolve_normalise(convolution, norm, x, activation); }
};
// depthwise.forward(first.forward(x)) for a depthwise convolution. In training on the CPU, all layers after the first convolution are one
// operator if they use this program's kernels.
torch::Tensor convolve_normalise_twice(const NormalisedConvolution& first, const NormalisedConvolution& depthwise, const torch::Tensor& x);

// torchvision.ops.SqueezeExcitation: scales each channel by a factor that is computed from the averages of all channels. Its children are
// "fc1" and "fc2".
class SqueezeExcitation : public torch::nn::Module {
 public:
  SqueezeExcitation(int64_t channels, int64_t squeezed_channels, Activation activation, Activation scale_activation);
  torch::Tensor forward(const torch::Tensor& x);  // [N, C, H, W]
  // From now on computes the gradient of the input with one operator, if it supports the input.
  void use_fused_operator() { is_fused_ = true; }

 private:
  torch::Tensor scale_of(const torch::Tensor& averages);

  Activation activation_, scale_activation_;
  std::shared_ptr<Conv2d> squeeze_, expand_;
  bool is_fused_ = false;
};

// torch.nn.Linear. Its parameters are not initialised: see default_uniform_ below.
class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool has_bias = true);
  torch::Tensor forward(const torch::Tensor& x);  // [N, in_features]

  torch::Tensor weight;
  torch::Tensor bias;  // undefined without bias
};

// torch.nn.LayerNorm over the last dimension, or over the channels of [N, C, H, W]; the initial weight is 1 and the bias 0.
class LayerNorm : public torch::nn::Module {
 public:
  explicit LayerNorm(int64_t num_channels, double eps = 1e-5);
  torch::Tensor forward(const torch::Tensor& x);           // [..., num_channels]
  torch::Tensor forward_channels(const torch::Tensor& x);  // [N, num_channels, H, W]

  torch::Tensor weight;
  torch::Tensor bias;

 private:
  double eps_;
};

// torch.nn.MultiheadAttention of a sequence with itself, without masks and dropout, with its parameter names or those of timm's Attention.
// Its parameters are not initialised.
class SelfAttention : public torch::nn::Module {
 public:
  enum class Names { kTorch, kTimm };
  SelfAttention(int64_t num_features, int64_t num_heads, Names names = Names::kTorch);
  torch::Tensor forward(const torch::Tensor& x);  // [N, positions, num_features]

  torch::Tensor in_proj_weight, in_proj_bias;  // undefined with timm's names
  std::shared_ptr<Linear> qkv;                 // null with torch's names
  std::shared_ptr<Linear> out_proj;            // named proj with timm's names

 private:
  int64_t num_heads_;
};

// Stochastic depth for the branch of a residual block (torchvision.ops.StochasticDepth by rows): in training, the values of a sample become
// 0 with probability p and are scaled by 1 / (1 - p) otherwise. The random numbers are from `generator`, as in Dropout.
class DropPath : public torch::nn::Module {
 public:
  DropPath(double p, at::Generator generator);
  torch::Tensor forward(const torch::Tensor& x);  // [N, ...]

 private:
  double p_;
  at::Generator generator_;
};

// Dropout whose mask is drawn from `generator`, on the generator's device. The train step reseeds it before each step.
class Dropout : public torch::nn::Module {
 public:
  Dropout(double p, at::Generator generator);
  // The identity in eval mode and for p = 0; otherwise keeps each value with probability 1 - p and scales it by 1 / (1 - p).
  torch::Tensor forward(const torch::Tensor& x);

 private:
  double p_;
  at::Generator generator_;
};

// Layers in sequence, named by their numbers or by names. Unlike LibTorch's Sequential, it can be nested.
class LayerList : public torch::nn::Module {
 public:
  template <class Layer>
  void add(const std::string& name, std::shared_ptr<Layer> layer) {
    register_module(name, layer);
    layers_.emplace_back(std::move(layer));
  }
  template <class Layer>
  void add(std::shared_ptr<Layer> layer) {
    add(std::to_string(layers_.size()), std::move(layer));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers_) x = layer.forward(std::move(x));
    return x;
  }

 private:
  std::vector<torch::nn::AnyModule> layers_;
};

// Initial values from a generator of the caller; the process-wide generator is never used. The formulas are those of torch.nn.init and of
// the layers' reset_parameters.

// Fills weight and bias (if defined) uniformly in ±1/sqrt(fan_in), the default of nn.Conv2d and nn.Linear.
void default_uniform_(torch::Tensor weight, torch::Tensor bias, at::Generator generator);
void normal_(torch::Tensor tensor, double mean, double std, at::Generator generator);
// torch.nn.init.trunc_normal_ without its rare outliers: normal with mean 0 and values in [-2, 2].
void truncated_normal_(torch::Tensor tensor, double std, at::Generator generator);
void uniform_(torch::Tensor tensor, double bound, at::Generator generator);

// Applies torch.nn.init.kaiming_normal_ to the weight of every Conv2d below `network`, in the order of its modules; biases become 0.
enum class Fan { kOut, kIn };
void init_convolutions_(const torch::nn::Module& network, const at::Generator& generator, Fan fan = Fan::kOut);

class Loss {
 public:
  virtual ~Loss() = default;
  // The mean over the batch, a scalar of float32 or wider. For masks: `outputs` [N, K, H, W] and `targets` uint8 [N, H, W], where 255 means
  // no class. Otherwise `outputs` [N, K]; for a loss with classes, `targets` are int64 [N], or the probability of each class [N, K] in a
  // floating type; for others, they have the outputs' shape and a floating type.
  virtual torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const = 0;
  // Whether targets are class labels.
  virtual bool has_classes() const = 0;
  // For a loss with classes: whether it treats each class independently, so that a sample may belong to any number of them.
  virtual bool has_independent_classes() const { return false; }

  // Whether samples are weighted: the mean, also over several batches and ranks, is then the sum of losses times weights, divided by the
  // sum of the weights.
  virtual bool weighs_samples() const { return false; }
  // The weight of each sample, [N] in a floating type; 1 if the loss does not weight samples.
  virtual torch::Tensor sample_weights(const torch::Tensor& targets) const { return torch::ones({targets.size(0)}, targets.device()); }
  // The reason why the class weights do not fit this number of classes; empty: they do. class_weights_key() is the key that sets them.
  virtual std::string refusal_of_classes(int64_t /*num_classes*/) const { return ""; }
  virtual std::string class_weights_key() const { return "class_weights"; }
  // Whether the class weights are computed from the training samples; if so, set_class_counts() must be called before the loss is used.
  virtual bool needs_class_counts() const { return false; }
  // `counts`: the number of training samples of each class. Returns the weights.
  virtual std::vector<double> set_class_counts(int64_t /*num_samples*/, const std::vector<int64_t>& /*counts*/) { return {}; }
};

using LossRegistry = Registry<std::unique_ptr<Loss>>;
LossRegistry& loss_registry();

}  // namespace trainer::nn
