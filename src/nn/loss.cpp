#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::nn {
namespace {

// Softmax and sums over classes lose too much precision in half precision; autocast widens them too.
torch::Tensor at_least_float32(const torch::Tensor& outputs) {
  return at::isReducedFloatingType(outputs.scalar_type()) ? outputs.to(torch::kFloat32) : outputs;
}

struct SmoothedOptions {
  double label_smoothing = 0.0;

  void describe(KeyTable& keys) {
    keys.add("label_smoothing", label_smoothing,
             {.min = 0.0, .max = 1.0, .max_excluded = true, .doc = "Share of the target that is spread evenly over all classes."});
  }
};

struct CrossEntropyOptions : SmoothedOptions {
  std::vector<double> class_weights;

  void describe(KeyTable& keys) {
    SmoothedOptions::describe(keys);
    keys.add(
        "class_weights", class_weights,
        {.min = 0.0,
         .min_excluded = true,
         .doc = "How much the samples of each class count, in the order of the classes, as the weight of torch.nn.CrossEntropyLoss; "
                "empty: all the same. The mean is divided by the sum of the weights of the samples of a step, on all ranks together."});
  }
};

class CrossEntropy : public Loss {
 public:
  explicit CrossEntropy(const CrossEntropyOptions& options)
      : label_smoothing_(options.label_smoothing),
        class_weights_(options.class_weights.empty() ? torch::Tensor() : torch::tensor(options.class_weights, torch::kFloat64)),
        used_weights_(class_weights_) {}

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    constexpr int64_t kIgnoredClass = -100;  // PyTorch's default; no dataset has it
    if (const auto refusal = refusal_of_classes(outputs.size(1)); !refusal.empty()) throw UsageError("loss.class_weights: " + refusal);
    const auto wide = at_least_float32(outputs);
    if (weighs_samples() && (used_weights_.device() != wide.device() || used_weights_.scalar_type() != wide.scalar_type())) {
      used_weights_ = class_weights_.to(wide.options());
    }
    return at::cross_entropy_loss(wide, targets, weighs_samples() ? std::optional(used_weights_) : std::nullopt, at::Reduction::Mean,
                                  kIgnoredClass, label_smoothing_);
  }
  bool has_classes() const override { return true; }

  bool weighs_samples() const override { return class_weights_.defined(); }
  torch::Tensor sample_weights(const torch::Tensor& targets) const override {
    // PyTorch divides the losses of probabilities by the number of samples.
    if (targets.is_floating_point()) return Loss::sample_weights(targets);
    // Those by which the losses were multiplied, with the same roundings.
    return used_weights_.to(targets.device()).index_select(0, targets).to(torch::kFloat64);
  }
  std::string refusal_of_classes(int64_t num_classes) const override {
    if (!weighs_samples() || class_weights_.size(0) == num_classes) return "";
    return c10::str("has ", class_weights_.size(0), " numbers, but there are ", num_classes, " classes; give one for each");
  }

 private:
  double label_smoothing_;
  torch::Tensor class_weights_;  // float64 [classes], on the CPU; not defined: all are 1
  // On the device, in the type of the outputs: a CUDA graph cannot copy from the host.
  mutable torch::Tensor used_weights_;
};

// timm's BinaryCrossEntropy, but without smoothing unless it is asked for.
class BinaryCrossEntropy : public Loss {
 public:
  explicit BinaryCrossEntropy(double label_smoothing) : label_smoothing_(label_smoothing) {}

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    const auto wide = at_least_float32(outputs);
    const auto num_classes = wide.size(1);
    auto probabilities =
        targets.is_floating_point() ? targets.to(wide.scalar_type()) : at::zeros_like(wide).scatter_(1, targets.unsqueeze(1), 1);
    if (label_smoothing_ > 0) probabilities = probabilities * (1 - label_smoothing_) + label_smoothing_ / static_cast<double>(num_classes);
    return at::binary_cross_entropy_with_logits(wide, probabilities, /*weight=*/{}, /*pos_weight=*/{}, at::Reduction::Mean);
  }
  bool has_classes() const override { return true; }

 private:
  double label_smoothing_;
};

struct FocalOptions {
  double gamma = 2.0;

  void describe(KeyTable& keys) {
    keys.add("gamma", gamma, {.min = 0.0, .doc = "How much less the samples count that are classified well; 0: cross entropy."});
  }
};

// Lin et al., "Focal Loss for Dense Object Detection", 2017, of a softmax: the cross entropy times (1 - p)^gamma, where p is the
// probability of the class.
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
  // `share`: of each class in the target of a sample; not defined: 1.
  torch::Tensor mean_of(const torch::Tensor& log_probabilities, const torch::Tensor& share = {}) const {
    // The gradient of a power below 1 is infinite at 0.
    constexpr double kLeast = 1e-30;
    auto losses = (-log_probabilities.expm1()).clamp_min(kLeast).pow(gamma_) * log_probabilities;
    if (share.defined()) losses = losses * share;
    return -losses.sum(1).mean();
  }

  double gamma_;
};

struct MeanSquaredErrorOptions {
  void describe(KeyTable&) {}
};

class MeanSquaredError : public Loss {
 public:
  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    if (outputs.sizes() != targets.sizes()) {
      throw UsageError(c10::str("loss mse needs targets of the outputs' shape, but the model's outputs are ", outputs.sizes(),
                                " and the dataset's targets ", targets.sizes(), "; choose another loss, model or dataset"));
    }
    const torch::Tensor wide = at_least_float32(outputs);
    return at::mse_loss(wide, targets.to(wide.scalar_type()), at::Reduction::Mean);
  }
  bool has_classes() const override { return false; }
};

}  // namespace

LossRegistry& loss_registry() {
  static LossRegistry all = [] {
    LossRegistry registry("loss");
    registry.add<CrossEntropyOptions>("cross_entropy", "Softmax and negative log-likelihood of the target class.",
                                      [](const auto& options) { return std::make_unique<CrossEntropy>(options); });
    registry.add<SmoothedOptions>(
        "bce",
        "Binary cross entropy of each class for itself, its mean over samples and classes, as in recipes with mixed "
        "images. Probabilities that are shown are those of a softmax.",
        [](const auto& options) { return std::make_unique<BinaryCrossEntropy>(options.label_smoothing); });
    registry.add<FocalOptions>("focal", "Cross entropy in which samples that are classified well count less, for rare classes.",
                               [](const auto& options) { return std::make_unique<Focal>(options.gamma); });
    registry.add<MeanSquaredErrorOptions>("mse", "Mean squared difference between outputs and targets.",
                                          [](const auto&) { return std::make_unique<MeanSquaredError>(); });
    return registry;
  }();
  return all;
}

}  // namespace trainer::nn
