// The program with an additional optimizer: Lion (Chen et al., 2023), which moves each value of a parameter by lr, against the sign of a
// mean of gradients.

#include <torch/torch.h>
#include <trainer/registry.h>
#include <trainer/trainer.h>

namespace {

namespace optim = trainer::optim;
namespace state = trainer::state;

struct LionOptions {
  double lr = 1e-4;
  std::vector<double> betas = {0.9, 0.99};
  double weight_decay = 0;

  void describe(trainer::KeyTable& keys) {
    keys.add("lr", lr, {.min = 0, .doc = "Learning rate, which the schedule scales."});
    keys.add("betas", betas, {.min = 0, .max = 1, .max_excluded = true, .doc = "Fractions of the old mean in the step and the new mean."});
    keys.refuse("betas", [this] { return betas.size() == 2 ? "" : "expected two numbers"; });
    keys.add("weight_decay", weight_decay, {.min = 0, .doc = "Fraction of the parameter, times lr, that each step subtracts."});
  }
};

class Lion : public optim::Optimizer {
 public:
  Lion(const LionOptions& options, std::vector<optim::ParamGroup> groups)
      : Optimizer(std::move(groups), /*state_names=*/{"exp_avg"}), options_(options) {}
  double base_lr() const override { return options_.lr; }

 private:
  void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) override {
    for (size_t i = 0; i < gradients.params.size(); ++i) {
      const auto& param = gradients.params[i];
      const auto& grad = gradients.grads[i];
      const auto& mean = gradients.states[0][i];
      const auto direction = mean.lerp(grad, 1 - options_.betas[0]).sign();
      const auto new_param = param - lr * (direction + weight_decay_of(group, options_.weight_decay) * param);
      const auto new_mean = mean.lerp(grad, 1 - options_.betas[1]);
      // Nothing changes where found_inf, a flag on the device, is 1.
      param.copy_(found_inf ? torch::where(found_inf->ne(0), param, new_param) : new_param);
      mean.copy_(found_inf ? torch::where(found_inf->ne(0), mean, new_mean) : new_mean);
    }
  }

  // For checkpoints.
  void add_options(size_t group, state::Dict& options) const override {
    options.add("betas", state::List{options_.betas[0], options_.betas[1]});
    options.add("weight_decay", weight_decay_of(group, options_.weight_decay));
  }

  LionOptions options_;
};

}  // namespace

int main(int argc, char** argv) {
  trainer::register_optimizer<LionOptions>(
      "lion", "Lion: steps of equal size against the sign of a mean of gradients.",
      [](const auto& options, auto groups) { return std::make_unique<Lion>(options, std::move(groups)); });
  return trainer::main(argc, argv);
}
