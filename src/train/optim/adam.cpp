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

// The state of one parameter; undefined before its first gradient.
struct AdamState {
  torch::Tensor step;  // float32 scalar on the parameter's device, as the kernels require
  torch::Tensor exp_avg;
  torch::Tensor exp_avg_sq;
};

AdamState first_state(const torch::Tensor& param) {
  return {torch::zeros({}, param.options().dtype(torch::kFloat32)), torch::zeros_like(param), torch::zeros_like(param)};
}

// Adam and AdamW.
class Adam final : public Optimizer {
 public:
  Adam(const AdamOptions& options, bool decoupled, std::vector<ParamGroup> groups)
      : Optimizer(std::move(groups)), options_(options), decoupled_(decoupled) {
    for (const auto& group : groups_) states_.emplace_back(group.params.size());
  }

  double base_lr() const override { return options_.lr; }

 private:
  bool takes_lr_tensors() const override { return true; }
  void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) override {
    std::vector<torch::Tensor> exp_avgs;
    std::vector<torch::Tensor> exp_avg_sqs;
    std::vector<torch::Tensor> steps;
    for (size_t i = 0; i < gradients.indices.size(); ++i) {
      const auto& param = gradients.params[i];
      auto& state = states_[group][gradients.indices[i]];
      if (!state.step.defined()) state = first_state(param);
      exp_avgs.push_back(state.exp_avg);
      exp_avg_sqs.push_back(state.exp_avg_sq);
      steps.push_back(state.step);
    }
    at::_foreach_add_(steps, 1);
    const auto adam = [](const auto&... arguments) { at::_fused_adam_(arguments...); };
    const auto adamw = [](const auto&... arguments) { at::_fused_adamw_(arguments...); };
    with_lr(group, lr, [&](const auto& rate) {
      const auto call = [&](const auto& kernel) {
        kernel(gradients.params, gradients.grads, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/at::TensorList(), steps, rate,
               options_.betas[0], options_.betas[1], weight_decay_of(group, options_.weight_decay), options_.eps, /*amsgrad=*/false,
               /*maximize=*/false, /*grad_scale=*/std::optional<torch::Tensor>(), found_inf);
      };
      decoupled_ ? call(adamw) : call(adam);
    });
    // Undo the count of a step that the kernel skipped.
    if (found_inf) at::_foreach_sub_(steps, std::vector<torch::Tensor>(steps.size(), *found_inf));
  }

  state::Dict param_state(size_t group, size_t index) const override {
    state::Dict state;
    const auto& [step, exp_avg, exp_avg_sq] = states_[group][index];
    if (!step.defined()) return state;
    state.add("step", step);
    state.add("exp_avg", exp_avg);
    state.add("exp_avg_sq", exp_avg_sq);
    return state;
  }

  void load_param_state(size_t group, size_t index, const std::optional<state::View>& view) override {
    auto& state = states_[group][index];
    state = view ? first_state(groups_[group].params[index]) : AdamState{};
    if (!view) return;
    view->at("step").copy_to(state.step);
    view->at("exp_avg").copy_to(state.exp_avg);
    view->at("exp_avg_sq").copy_to(state.exp_avg_sq);
  }

  void add_options(size_t group, state::Dict& options) const override {
    options.add("betas", state::List{options_.betas[0], options_.betas[1]});
    options.add("eps", options_.eps);
    options.add("weight_decay", weight_decay_of(group, options_.weight_decay));
    options.add("amsgrad", false);
    options.add("maximize", false);
    options.add("foreach", state::Tree());
    options.add("capturable", false);
    options.add("differentiable", false);
    options.add("fused", state::Tree());
    options.add("decoupled_weight_decay", decoupled_);
  }

  AdamOptions options_;
  bool decoupled_;  // true (AdamW): weight decay shrinks the parameter; false (Adam): it is added to its gradient
  std::vector<std::vector<AdamState>> states_;  // indexed like groups_
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
