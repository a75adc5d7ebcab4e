// Moves each parameter by lr against the sign of its gradient.

#include <torch/torch.h>

#include "optim/optimizer.h"

namespace trainer::optim {
namespace {

struct SignSgdOptions {
  double lr = 0.001;

  void describe(KeyTable& keys) { keys.add("lr", lr, {.min = 0, .doc = "Learning rate, which the schedule scales."}); }
};

class SignSgd : public Optimizer {
 public:
  SignSgd(const SignSgdOptions& options, std::vector<ParamGroup> groups) : Optimizer(std::move(groups)), lr_(options.lr) {}

  double base_lr() const override { return lr_; }

 private:
  void update(size_t /*group*/, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) override {
    for (size_t i = 0; i < gradients.params.size(); ++i) {
      const auto change = gradients.grads[i].sign().mul_(-lr);
      // Nothing changes where found_inf, a flag on the device, is 1.
      gradients.params[i].add_(found_inf ? torch::where(found_inf->ne(0), torch::zeros_like(change), change) : change);
    }
  }

  // Nothing is kept between updates; see adam.cpp for tensors that go into checkpoints.
  state::Dict param_state(size_t /*group*/, size_t /*index*/) const override { return {}; }
  void load_param_state(size_t /*group*/, size_t /*index*/, const std::optional<state::View>& /*view*/) override {}
  void add_options(size_t /*group*/, state::Dict& /*options*/) const override {}

  double lr_;
};

}  // namespace

void add_sign_sgd(OptimizerRegistry& registry) {
  registry.add<SignSgdOptions>("sign_sgd", "Steps of equal length against the gradient's sign.",
                               [](const auto& options, auto groups) { return std::make_unique<SignSgd>(options, std::move(groups)); });
}

}  // namespace trainer::optim
