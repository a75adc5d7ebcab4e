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

class CrossEntropy : public Loss {
 public:
  explicit CrossEntropy(double label_smoothing) : label_smoothing_(label_smoothing) {}

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    constexpr int64_t kIgnoredClass = -100;  // PyTorch's default; no dataset has it
    return at::cross_entropy_loss(at_least_float32(outputs), targets, /*weight=*/{}, at::Reduction::Mean, kIgnoredClass, label_smoothing_);
  }
  bool has_classes() const override { return true; }

 private:
  double label_smoothing_;
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

// Lin et al., "Focal Loss for Dense Object Detection", 2017, of a softmax: the cross entropy times (1 - p)^gamma, where p is the probability
// of the class.
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
    registry.add<SmoothedOptions>("cross_entropy", "Softmax and negative log-likelihood of the target class.",
                                  [](const auto& options) { return std::make_unique<CrossEntropy>(options.label_smoothing); });
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
