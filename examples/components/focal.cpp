// The focal loss of Lin et al., 2017: samples that are classified well count less.

#include <torch/torch.h>
#include <trainer/registry.h>

namespace {

struct FocalOptions {
  double gamma = 2;

  void describe(trainer::KeyTable& keys) {
    keys.add("gamma", gamma, {.min = 0, .doc = "How much less the samples count that are classified well; 0: cross entropy."});
  }
};

class Focal : public trainer::nn::Loss {
 public:
  explicit Focal(double gamma) : gamma_(gamma) {}

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    const auto of_each =
        torch::nn::functional::cross_entropy(outputs, targets, torch::nn::CrossEntropyLossOptions().reduction(torch::kNone));
    return ((1 - (-of_each).exp()).pow(gamma_) * of_each).mean();
  }
  bool has_classes() const override { return true; }

 private:
  double gamma_;
};

}  // namespace

void add_focal() {
  trainer::register_loss<FocalOptions>("focal", "Cross entropy in which samples that are classified well count less.",
                                       [](const FocalOptions& options) { return std::make_unique<Focal>(options.gamma); });
}
