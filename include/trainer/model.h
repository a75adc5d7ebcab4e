#pragma once
// The base class of networks, and the arguments of their constructors.

#include <memory>
#include <string>
#include <vector>

#include "trainer/component.h"
#include "trainer/nn.h"
#include "trainer/torch.h"

namespace trainer::models {

// The keys of a network, and the properties that are known before it is built.
struct ModelOptions {
  // The shape of one input sample, such as {3, 32, 32}; -1: any height or width.
  virtual std::vector<int64_t> input_shape() const = 0;
  virtual int64_t num_outputs() const = 0;
  // The key that sets the number of outputs.
  virtual std::string outputs_key() const { return "num_classes"; }
  // Whether the number of outputs is taken from the data set, by set_num_outputs(), because the experiment does not set it.
  virtual bool takes_num_outputs() const { return false; }
  virtual void set_num_outputs(int64_t /*num_outputs*/) {}
  // Sets the number of channels of samples of shape {channels, height, width}, if the experiment does not set it.
  virtual void set_num_channels(int64_t /*num_channels*/) {}
  // Sets the height and width of the transformed training images, if the experiment does not set them.
  virtual void set_image_size(int64_t /*height*/, int64_t /*width*/) {}
};

// The options of networks whose outputs are scores of classes.
struct ClassifierOptions : ModelOptions {
  Auto<int64_t> num_classes = {};
  Auto<int64_t> in_channels = {};

  int64_t num_outputs() const override { return num_classes.value.value_or(kDefaultClasses); }
  bool takes_num_outputs() const override { return !num_classes.value; }
  void set_num_outputs(int64_t num_outputs) override { num_classes.value = num_outputs; }
  void set_num_channels(int64_t num_channels) override {
    if (!in_channels.value) in_channels.value = num_channels;
  }
  int64_t num_channels() const { return in_channels.value.value_or(kDefaultChannels); }

 protected:
  void describe_num_classes(KeyTable& keys) {
    keys.add("num_classes", num_classes,
             {.min = 1, .doc = "Number of outputs; auto: one for each class of the data set, or for each number to predict."});
  }
  // For networks that accept images with any number of channels.
  void describe_in_channels(KeyTable& keys) {
    keys.add("in_channels", in_channels,
             {.min = 1, .max = 65536, .doc = "Number of channels of the images; auto: that of the data set, such as 3 for colour."});
  }

 private:
  // The defaults without a data set.
  static constexpr int64_t kDefaultClasses = 10;
  static constexpr int64_t kDefaultChannels = 3;
};

class Model : public torch::nn::Module {
 public:
  explicit Model(const ModelOptions& options) : input_shape_(options.input_shape()), num_outputs_(options.num_outputs()) {}

  // The forward pass of one batch with first dimension N; images are [N, C, H, W]. Returns [N, num_outputs], or for masks
  // [N, num_outputs, H, W].
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  // The values of the options.
  const std::vector<int64_t>& input_shape() const { return input_shape_; }
  int64_t num_outputs() const { return num_outputs_; }
  // Whether the network is faster in NHWC memory order: the choice of `runtime.channels_last: auto`.
  virtual bool prefers_channels_last() const { return true; }

  // For a network whose initial values depend on data: the number of images that fit() needs; 0: none.
  virtual int64_t num_fitted_images() const { return 0; }
  // Computes these initial values from the first images of the training set, [N, C, H, W] on the CPU, after the validation transforms.
  virtual void fit(const torch::Tensor& /*images*/) {}

 private:
  std::vector<int64_t> input_shape_;
  int64_t num_outputs_;
};

// A network with a backbone, which computes the features of a sample, and a head. The outputs of a frozen backbone can be computed once for
// all epochs (training.cache_features).
class BackboneModel : public Model {
 public:
  using Model::Model;

  torch::Tensor forward(const torch::Tensor& x) final { return forward_head(takes_features_ ? x : forward_features(x)); }
  // The features [N, ...] of a batch `x`, which has the shape of the network's input.
  virtual torch::Tensor forward_features(const torch::Tensor& x) = 0;
  // The outputs [N, num_outputs] for the result of forward_features(). Dropout that is not part of the backbone belongs here.
  virtual torch::Tensor forward_head(const torch::Tensor& features) = 0;
  // From now on the input of forward() is the result of forward_features().
  void take_features() { takes_features_ = true; }

 private:
  bool takes_features_ = false;
};

// A backbone that averages maps, or attends to patches, of the image. They show which parts of the image decide (`trainer predict
// --heat-maps`).
class FeatureMapModel : public BackboneModel {
 public:
  using BackboneModel::BackboneModel;

  torch::Tensor forward_features(const torch::Tensor& x) override { return pool_maps(forward_maps(x)); }
  // The last maps, [N, C, h, w]; or tokens, [N, n + h·h, C]: one of the class and a few others, then those of the patches of a square
  // image, row by row; n < 2h.
  virtual torch::Tensor forward_maps(const torch::Tensor& x) = 0;
  // The features for the result of forward_maps(): the mean of each map.
  virtual torch::Tensor pool_maps(const torch::Tensor& maps) { return at::adaptive_avg_pool2d(maps, {1, 1}).flatten(1); }
};

// The arguments for building a network. It is built on the CPU in float32 and moved by the caller.
struct BuildContext {
  at::Generator init_generator;     // CPU; the source of every initial value
  at::Generator dropout_generator;  // on the training device; reseeded by the train step before each step
  nn::NormFactory norm;
};

// The keys that every layer of `model: {name: layers}` has.
struct LayerOptions {
  std::string name = {};

  void describe(KeyTable& keys) {
    keys.add("name", name,
             {.doc = "Name of the layer in model.freeze, optimizer.groups and weights: letters, digits and _; empty: its number in the "
                     "list, from 0."});
  }
};

// The arguments for making a layer of `model: {name: layers}`.
struct LayerContext {
  const BuildContext& build;
  std::vector<int64_t> input_shape;  // of one sample: {channels, height, width}, or {features}
  int64_t num_outputs;               // of the network
};

struct Layer {
  torch::nn::AnyModule module;  // its forward() takes and returns one tensor
  std::vector<int64_t> output_shape;
};

}  // namespace trainer::models
