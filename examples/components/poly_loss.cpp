// The Poly-1 loss of Leng et al., "PolyLoss", 2022: cross entropy plus a term linear in the probability of the right class.

#include <torch/torch.h>
#include <trainer/registry.h>

namespace {

struct PolyOptions {
  double epsilon = 1;

  void describe(trainer::KeyTable& keys) {
    keys.add("epsilon", epsilon, {.min = -1, .doc = "Factor of 1 - p, where p is the probability of the right class; 0: cross entropy."});
  }
};

class PolyLoss : public trainer::nn::Loss {
 public:
  explicit PolyLoss(double epsilon) : epsilon_(epsilon) {}

  torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const override {
    const auto of_each =
        torch::nn::functional::cross_entropy(outputs, targets, torch::nn::CrossEntropyLossOptions().reduction(torch::kNone));
    return (of_each + epsilon_ * (1 - (-of_each).exp())).mean();
  }
  bool has_classes() const override { return true; }

 private:
  double epsilon_;
};

}  // namespace

void add_poly_loss() {
  trainer::register_loss<PolyOptions>("poly", "Cross entropy plus a multiple of 1 - p, where p is the probability of the right class.",
                                      [](const PolyOptions& options) { return std::make_unique<PolyLoss>(options.epsilon); });
}
