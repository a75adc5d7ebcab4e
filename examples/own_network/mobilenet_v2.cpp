// MobileNetV2 (Sandler et al., 2018) for small images, built from LibTorch's layers, as a plug-in: an experiment file with
// `plugins: [libmobilenet_v2.so]` can use it like the networks of the program.

#include <torch/torch.h>
#include <trainer/registry.h>

#include <algorithm>

namespace {

namespace nn = torch::nn;

struct MobileNetV2Options : trainer::models::ClassifierOptions {
  double width = 1.0;
  double dropout = 0.2;

  void describe(trainer::KeyTable& keys) {
    describe_num_classes(keys);
    describe_in_channels(keys);
    keys.add("width", width, {.min = 0.1, .max = 4, .doc = "Factor for the number of channels of each layer."});
    keys.add("dropout", dropout, {.min = 0, .max = 1, .max_excluded = true, .doc = "Share of the features that are dropped in training."});
  }
  std::vector<int64_t> input_shape() const override { return {num_channels(), -1, -1}; }
  int64_t channels(int64_t count) const { return std::max<int64_t>(8, std::llround(static_cast<double>(count) * width / 8) * 8); }
};

nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups).bias(false));
}

// Expands the channels, convolves each separately, and projects to `out` channels; adds its input where the shapes are equal.
class InvertedResidualImpl : public nn::Module {
 public:
  InvertedResidualImpl(int64_t in, int64_t out, int64_t stride, int64_t expansion) : adds_input_(stride == 1 && in == out) {
    const auto hidden = in * expansion;
    if (expansion > 1) {
      layers_->push_back(convolution(in, hidden, 1));
      layers_->push_back(nn::BatchNorm2d(hidden));
      layers_->push_back(nn::ReLU6());
    }
    layers_->push_back(convolution(hidden, hidden, 3, stride, hidden));
    layers_->push_back(nn::BatchNorm2d(hidden));
    layers_->push_back(nn::ReLU6());
    layers_->push_back(convolution(hidden, out, 1));
    layers_->push_back(nn::BatchNorm2d(out));
    register_module("layers", layers_);
  }
  torch::Tensor forward(const torch::Tensor& x) { return adds_input_ ? x + layers_->forward(x) : layers_->forward(x); }

 private:
  bool adds_input_;
  nn::Sequential layers_;
};
TORCH_MODULE(InvertedResidual);

class MobileNetV2 : public trainer::models::Model {
 public:
  explicit MobileNetV2(const MobileNetV2Options& options) : Model(options), dropout_(options.dropout) {
    struct Stage {
      int64_t expansion, channels, blocks, stride;
    };
    // The first strides are 1, so that the features of images of 32 x 32 pixels still have a size of 4 x 4.
    constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 1}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    int64_t in = options.channels(32);
    features_->push_back(convolution(options.num_channels(), in, 3));
    features_->push_back(nn::BatchNorm2d(in));
    features_->push_back(nn::ReLU6());
    for (const auto& stage : kStages) {
      for (int64_t block = 0; block < stage.blocks; ++block) {
        const auto out = options.channels(stage.channels);
        features_->push_back(InvertedResidual(in, out, block == 0 ? stage.stride : 1, stage.expansion));
        in = out;
      }
    }
    const auto last = options.channels(1280);
    features_->push_back(convolution(in, last, 1));
    features_->push_back(nn::BatchNorm2d(last));
    features_->push_back(nn::ReLU6());
    register_module("features", features_);
    register_module("dropout", dropout_);
    classifier_ = register_module("classifier", nn::Linear(last, options.num_outputs()));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    return classifier_->forward(dropout_->forward(features_->forward(x).mean({2, 3})));
  }

 private:
  nn::Sequential features_;
  nn::Dropout dropout_;
  nn::Linear classifier_{nullptr};
};

}  // namespace

TRAINER_PLUGIN() {
  trainer::register_model<MobileNetV2Options>("mobilenet_v2_small", "MobileNetV2 of LibTorch's layers, for images from 32 x 32 pixels up.",
                                              [](const auto& options, const auto&) { return std::make_shared<MobileNetV2>(options); });
}
