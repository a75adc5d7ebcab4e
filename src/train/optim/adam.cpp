#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "train/optim/optimizer.h"
#include "trainer/components.h"
#include "trainer/torch.h"

namespace trainer::optim {
namespace {

void describe_adam(KeyTable& keys, double& lr, std::vector<double>& betas, double& eps) {
  keys.add("lr", lr, {.min = 0, .doc = "Learning rate, which the schedule scales."});
  keys.add("betas", betas,
           {.min = 0, .max = 1, .max_excluded = true, .doc = "Two decay factors, of the running means of the gradient and of its square."});
  keys.add("eps", eps, {.min = 0, .min_excluded = true, .doc = "Added to the denominator."});
  keys.refuse("betas", [&betas]() -> std::string {
    return betas.size() == 2 ? "" : fmt::format("[{}] has {}; give two", fmt::join(betas, ", "), counted(betas.size(), "number"));
  });
}

}  // namespace

void AdamOptions::describe(KeyTable& keys) {
  describe_adam(keys, lr, betas, eps);
  keys.add("weight_decay", weight_decay, {.min = 0, .doc = "L2 penalty: this fraction of the parameter is added to its gradient."});
}

void AdamWOptions::describe(KeyTable& keys) {
  describe_adam(keys, lr, betas, eps);
  keys.add("weight_decay", weight_decay,
           {.min = 0, .doc = "Decoupled weight decay: lr times this fraction of the parameter is subtracted in each update."});
}

namespace {

// Adam and AdamW.
class Adam final : public Optimizer {
 public:
  Adam(const AdamOptions& options, bool decoupled, std::vector<ParamGroup> groups)
      : Optimizer(std::move(groups), {"step", "exp_avg", "exp_avg_sq"}), options_(options), decoupled_(decoupled) {}

  double base_lr() const override { return options_.lr; }

 private:
  bool takes_lr_tensors() const override { return true; }
  std::vector<torch::Tensor> first_state(const torch::Tensor& param) const override {
    // The kernels require that the number of steps is a float32 scalar on the parameter's device.
    return {torch::zeros({}, param.options().dtype(torch::kFloat32)), torch::zeros_like(param), torch::zeros_like(param)};
  }

  void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) override {
    const auto& steps = gradients.states[0];
    at::_foreach_add_(steps, 1);
    const auto adam = [](const auto&... arguments) { at::_fused_adam_(arguments...); };
    const auto adamw = [](const auto&... arguments) { at::_fused_adamw_(arguments...); };
    with_lr(group, lr, [&](const auto& rate) {
      const auto call = [&](const auto& kernel) {
        kernel(gradients.params, gradients.grads, gradients.states[1], gradients.states[2], /*max_exp_avg_sqs=*/at::TensorList(), steps,
               rate, options_.betas[0], options_.betas[1], weight_decay_of(group, options_.weight_decay), options_.eps, /*amsgrad=*/false,
               /*maximize=*/false, /*grad_scale=*/std::optional<torch::Tensor>(), found_inf);
      };
      decoupled_ ? call(adamw) : call(adam);
    });
    // Undo the count of a step that the kernel skipped.
    if (found_inf) at::_foreach_sub_(steps, std::vector<torch::Tensor>(steps.size(), *found_inf));
  }

  void add_options(size_t group, state::Dict& options) const override {
    add_adam_options(options, options_.betas[0], options_.betas[1], options_.eps, weight_decay_of(group, options_.weight_decay),
                     /*amsgrad=*/false, decoupled_);
  }

  AdamOptions options_;
  bool decoupled_;  // true (AdamW): weight decay shrinks the parameter; false (Adam): it is added to its gradient
};

}  // namespace

void add_adam(OptimizerRegistry& registry) {
  registry.add<AdamOptions>("adam", "Adam (Kingma and Ba 2014); weight decay is added to the gradient.",
                            [](const auto& options, auto groups) { return std::make_unique<Adam>(options, false, std::move(groups)); });
  registry.add<AdamWOptions>("adamw", "Adam with decoupled weight decay (Loshchilov and Hutter 2017).",
                             [](const auto& options, auto groups) {
                               const auto& [lr, betas, eps, weight_decay] = options;
                               return std::make_unique<Adam>(AdamOptions{lr, betas, eps, weight_decay}, true, std::move(groups));
                             });
}

}  // namespace trainer::optim
