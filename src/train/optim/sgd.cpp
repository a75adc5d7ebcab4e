#include "train/optim/sgd.h"

#include <fmt/format.h>

#include <functional>

#include "trainer/torch.h"

namespace trainer::optim {

void SgdOptions::describe(KeyTable& keys) {
  keys.add("lr", lr, {.min = 0, .doc = "Learning rate, which the schedule scales."});
  keys.add("momentum", momentum,
           {.min = 0, .max = 1, .max_excluded = true, .doc = "Fraction of the last update's direction that is kept."});
  keys.add("dampening", dampening, {.min = 0, .max = 1, .doc = "Fraction of the gradient that is not added to the momentum buffer."});
  keys.add("weight_decay", weight_decay, {.min = 0, .doc = "L2 penalty: this fraction of the parameter is added to its gradient."});
  keys.add("nesterov", nesterov, {.doc = "Use Nesterov's momentum; needs momentum above 0 and dampening 0."});
  keys.refuse("nesterov", [this]() -> std::string {
    if (!nesterov || (momentum > 0 && dampening == 0)) return "";
    return fmt::format(
        "true needs momentum above 0 and dampening 0, but momentum is {} and dampening {}; change these values or set nesterov to "
        "false",
        momentum, dampening);
  });
}

Sgd::Sgd(const SgdOptions& options, std::vector<ParamGroup> groups)
    : Optimizer(std::move(groups), {"momentum_buffer"}), options_(options) {}

std::vector<torch::Tensor> Sgd::first_state(const torch::Tensor& param) const {
  return {options_.momentum != 0 ? torch::zeros_like(param) : torch::Tensor()};
}

void Sgd::update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) {
  // The kernel ignores dampening in the first update that is not skipped, and needs a flag for it. So the host must know whether this
  // update is skipped. Without dampening, a buffer of zeros gives the correct first step without a flag.
  const auto is_first = [&](size_t position) { return options_.momentum != 0 && options_.dampening != 0 && gradients.are_new[position]; };
  const auto first = gradients.select(is_first);
  if (!first.params.empty() && found_inf && found_inf->item<float>() != 0) {
    for (const auto index : first.indices) states_[group][index].clear();
    return;
  }
  const double weight_decay = weight_decay_of(group, options_.weight_decay);
  const auto run = [&](const Gradients& lists, bool is_first_step) {
    if (lists.params.empty()) return;
    const auto buffers = options_.momentum != 0 ? lists.states[0] : std::vector<torch::Tensor>();
    with_lr(group, lr, [&](const auto& rate) {
      at::_fused_sgd_(lists.params, lists.grads, buffers, weight_decay, options_.momentum, rate, options_.dampening, options_.nesterov,
                      /*maximize=*/false, is_first_step, /*grad_scale=*/{}, found_inf);
    });
  };
  run(first, /*is_first_step=*/true);
  run(gradients.select(std::not_fn(is_first)), /*is_first_step=*/false);
}

void Sgd::load_param_state(size_t group, size_t index, const std::optional<state::View>& view) {
  // Older PyTorch writes None for a parameter without momentum.
  const bool is_none = view && view->at("momentum_buffer").is_none();
  Optimizer::load_param_state(group, index, is_none ? std::nullopt : view);
}

void Sgd::add_options(size_t group, state::Dict& options) const {
  add_sgd_options(options, options_.momentum, options_.dampening, weight_decay_of(group, options_.weight_decay), options_.nesterov);
}

void add_sgd(OptimizerRegistry& registry) {
  registry.add<SgdOptions>("sgd", "Stochastic gradient descent, with optional momentum.",
                           [](const auto& options, auto groups) { return std::make_unique<Sgd>(options, std::move(groups)); });
}

}  // namespace trainer::optim
