#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/components.h"
#include "trainer/error.h"
#include "trainer/nn.h"
#include "trainer/torch.h"

namespace trainer::nn {
namespace {

void describe_smoothing(KeyTable& keys, double& label_smoothing) {
  keys.add("label_smoothing", label_smoothing,
           {.min = 0.0, .max = 1.0, .max_excluded = true, .doc = "Fraction of the target that is distributed evenly over all classes."});
}

}  // namespace

void CrossEntropyOptions::describe(KeyTable& keys) {
  describe_smoothing(keys, label_smoothing);
  keys.add(
      "class_weights", class_weights,
      {.min = 0.0,
       .min_excluded = true,
       .doc = "Weight of the samples of each class, in the order of the classes, like the weight of "
              "torch.nn.CrossEntropyLoss; []: equal weights; auto: the number of training samples divided by the number of samples of "
              "the class and by the number of classes (scikit-learn's `balanced`). A step divides the sum of the losses of all ranks by "
              "the sum of the samples' weights; with dataset.batch_transforms, by the number of samples."});
}

void BinaryCrossEntropyOptions::describe(KeyTable& keys) {
  describe_smoothing(keys, label_smoothing);
  keys.add("pos_weight", pos_weight,
           {.min = 0.0,
            .min_excluded = true,
            .doc = "For each class, the weight of its samples, relative to 1 for the other samples, like the pos_weight of "
                   "torch.nn.BCEWithLogitsLoss; []: 1; auto: the number of training samples that do not belong to the class divided by "
                   "the number of those that do."});
}

namespace {

// Softmax and sums over classes are too inaccurate in half precision; autocast also computes them in float32.
torch::Tensor at_least_float32(const torch::Tensor& outputs) {
  return at::isReducedFloatingType(outputs.scalar_type()) ? outputs.to(torch::kFloat32) : outputs;
}

// A loss with classes, which may have weights.
class ClassLoss : public Loss {
 public:
  bool has_classes() const override { return true; }
  std::string class_weights_key() const override { return key_; }
  std::string refusal_of_classes(int64_t num_classes) const override {
    if (!weights_.defined() || weights_.size(0) == num_classes) return "";
    return c10::str("has ", weights_.size(0), " numbers, but there are ", num_classes, " classes; set one number per class");
  }
  bool needs_class_counts() const override { return is_auto_; }
  std::vector<double> set_class_counts(int64_t num_samples, const std::vector<int64_t>& counts) override {
    std::vector<double> weights;
    for (const auto count : counts) weights.push_back(weight_of(count, num_samples, static_cast<double>(counts.size())));
    set(weights);
    return weights;
  }

 protected:
  // `key`: of the weights. If `weights` has no value, they are computed from the training samples.
  ClassLoss(const Auto<std::vector<double>>& weights, const char* key) : is_auto_(!weights.value), key_(key) {
    if (weights.value && !weights.value->empty()) set(*weights.value);
  }

  // The weight of a class with `count` of all training samples.
  virtual double weight_of(int64_t count, int64_t num_samples, double num_classes) const = 0;

  bool has_weights() const { return is_auto_ || weights_.defined(); }
  // The weights, on the device and in the type of `outputs`, [N, classes]; nullopt if there are none.
  std::optional<torch::Tensor> weights_for(const torch::Tensor& outputs) const {
    if (!has_weights()) return std::nullopt;
    if (!weights_.defined()) {
      throw UsageError(c10::str("loss.", key_,
                                ": auto needs the number of training samples of each class, which is not known here; set the weights "
                                "explicitly"));
    }
    if (const auto refusal = refusal_of_classes(outputs.size(1)); !refusal.empty())
      throw UsageError(c10::str("loss.", key_, ": ", refusal));
    if (used_.device() != outputs.device() || used_.scalar_type() != outputs.scalar_type()) {
      // Not an inference tensor, because steps that record gradients use it too.
      const torch::InferenceMode off(false);
      used_ = weights_.to(outputs.options());
    }
    return used_;
  }
  // Returns the weights by which the losses of `targets`, int64 [N], were multiplied, with the same rounding.
  torch::Tensor weights_of(const torch::Tensor& targets) const {
    return used_.to(targets.device()).index_select(0, targets).to(torch::kFloat64);
  }

 private:
  void set(const std::vector<double>& weights) { weights_ = used_ = torch::tensor(weights, torch::kFloat64); }

  bool is_auto_;
  const char* key_;
  torch::Tensor weights_;  // float64 [classes], on the CPU; undefined if there are none (yet)
  // weights_ on the device and in the type of the last outputs; kept because a CUDA graph cannot copy from the host.
  mutable torch::Tensor used_;
};

class CrossEntropy : public ClassLoss {
 public:
  explicit CrossEntropy(const CrossEntropyOptions& options)
      : ClassLoss(options.class_weights, "class_weights"), label_smoothing_(options.label_smoothing) {}

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    constexpr int64_t kIgnoredClass = -100;  // PyTorch's default; no data set contains it
    const auto wide = at_least_float32(outputs);
    return at::cross_entropy_loss(wide, targets, weights_for(wide), at::Reduction::Mean, kIgnoredClass, label_smoothing_);
  }

  bool weighs_samples() const override { return has_weights(); }
  torch::Tensor sample_weights(const torch::Tensor& targets) const override {
    // For targets that are probabilities, PyTorch divides the sum of the losses by the number of samples.
    return targets.is_floating_point() ? Loss::sample_weights(targets) : weights_of(targets);
  }

 private:
  double weight_of(int64_t count, int64_t num_samples, double num_classes) const override {
    return static_cast<double>(num_samples) / (static_cast<double>(std::max<int64_t>(count, 1)) * num_classes);
  }

  double label_smoothing_;
};

// Like timm's BinaryCrossEntropy, but smoothing is off by default, and also changes targets that are probabilities.
class BinaryCrossEntropy : public ClassLoss {
 public:
  explicit BinaryCrossEntropy(const BinaryCrossEntropyOptions& options)
      : ClassLoss(options.pos_weight, "pos_weight"), label_smoothing_(options.label_smoothing) {}

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    const auto wide = at_least_float32(outputs);
    const auto num_classes = wide.size(1);
    auto probabilities =
        targets.is_floating_point() ? targets.to(wide.scalar_type()) : at::zeros_like(wide).scatter_(1, targets.unsqueeze(1), 1);
    if (label_smoothing_ > 0) probabilities = probabilities * (1 - label_smoothing_) + label_smoothing_ / static_cast<double>(num_classes);
    return at::binary_cross_entropy_with_logits(wide, probabilities, /*weight=*/{}, weights_for(wide), at::Reduction::Mean);
  }
  bool has_independent_classes() const override { return true; }

 private:
  double weight_of(int64_t count, int64_t num_samples, double /*num_classes*/) const override {
    return static_cast<double>(std::max<int64_t>(num_samples - count, 1)) / static_cast<double>(std::max<int64_t>(count, 1));
  }

  double label_smoothing_;
};

struct FocalOptions {
  double gamma = 2.0;

  void describe(KeyTable& keys) {
    keys.add("gamma", gamma,
             {.min = 0.0, .doc = "Focusing parameter: larger values reduce the loss of well-classified samples more; 0: cross entropy."});
  }
};

// Lin et al., "Focal Loss for Dense Object Detection", 2017, with a softmax: the cross entropy times (1 - p)^gamma, where p is the
// predicted probability of the target class.
class Focal : public Loss {
 public:
  explicit Focal(double gamma) : gamma_(gamma) {}

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    auto log_probabilities = at_least_float32(outputs).log_softmax(1);
    if (!targets.is_floating_point()) {
      return mean_of(log_probabilities.gather(1, targets.unsqueeze(1)));
    }
    return mean_of(log_probabilities, targets.to(log_probabilities.scalar_type()));
  }
  bool has_classes() const override { return true; }

 private:
  // `share`: the share of each class in the target of a sample; 1 if undefined.
  torch::Tensor mean_of(const torch::Tensor& log_probabilities, const torch::Tensor& share = {}) const {
    // The gradient of a power with an exponent below 1 is infinite at 0.
    constexpr double kLeast = 1e-30;
    auto losses = (-log_probabilities.expm1()).clamp_min(kLeast).pow(gamma_) * log_probabilities;
    if (share.defined()) losses = losses * share;
    return -losses.sum(1).mean();
  }

  double gamma_;
};

// The mean of a function of each difference between outputs and targets.
class LossOfNumbers : public Loss {
 public:
  using Compute = std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)>;
  LossOfNumbers(std::string name, Compute compute) : name_(std::move(name)), compute_(std::move(compute)) {}

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    if (outputs.sizes() != targets.sizes()) {
      throw UsageError(c10::str("loss ", name_, " needs targets with the shape of the outputs, but the model's outputs have the shape ",
                                outputs.sizes(), " and the data set's targets ", targets.sizes(),
                                "; choose a different loss, model or data set"));
    }
    const torch::Tensor wide = at_least_float32(outputs);
    return compute_(wide, targets.to(wide.scalar_type()));
  }
  bool has_classes() const override { return false; }

 private:
  std::string name_;
  Compute compute_;
};

struct NoOptions {
  void describe(KeyTable&) {}
};

struct HuberOptions {
  double delta = 1.0;

  void describe(KeyTable& keys) {
    keys.add(
        "delta", delta,
        {.min = 0.0,
         .min_excluded = true,
         .doc = "The difference above which the loss is linear. If the task normalises the targets, the difference is in units of their "
                "standard deviation."});
  }
};

std::unique_ptr<Loss> make_huber(const HuberOptions& options) {
  return std::make_unique<LossOfNumbers>("huber", [delta = options.delta](const torch::Tensor& outputs, const torch::Tensor& targets) {
    return at::huber_loss(outputs, targets, at::Reduction::Mean, delta);
  });
}

std::unique_ptr<Loss> make_loss_of_numbers(const char* name, at::Tensor (*compute)(const at::Tensor&, const at::Tensor&, int64_t)) {
  return std::make_unique<LossOfNumbers>(name, [compute](const torch::Tensor& outputs, const torch::Tensor& targets) {
    return compute(outputs, targets, at::Reduction::Mean);
  });
}

}  // namespace

LossRegistry& loss_registry() {
  static LossRegistry all = [] {
    LossRegistry registry("loss");
    registry.add<CrossEntropyOptions>("cross_entropy", "Softmax and negative log-likelihood of the target class.",
                                      [](const auto& options) { return std::make_unique<CrossEntropy>(options); });
    registry.add<BinaryCrossEntropyOptions>(
        "bce",
        "Mean over samples and classes of the binary cross entropy of each class: for images that belong to any number of "
        "classes, and for recipes with mixed images. In the task classification, displayed probabilities are those of a softmax.",
        [](const auto& options) { return std::make_unique<BinaryCrossEntropy>(options); });
    registry.add<FocalOptions>("focal", "Cross entropy in which well-classified samples have less weight, for rare classes.",
                               [](const auto& options) { return std::make_unique<Focal>(options.gamma); });
    registry.add<NoOptions>("mse", "Mean squared difference between outputs and targets.",
                            [](const auto&) { return make_loss_of_numbers("mse", at::mse_loss); });
    registry.add<NoOptions>("l1", "Mean absolute difference between outputs and targets.",
                            [](const auto&) { return make_loss_of_numbers("l1", at::l1_loss); });
    registry.add<HuberOptions>("huber", "Like mse for small differences and l1 for large ones, which reduces the influence of outliers.",
                               make_huber);
    return registry;
  }();
  return all;
}

}  // namespace trainer::nn
