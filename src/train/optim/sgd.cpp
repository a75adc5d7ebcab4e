#include "train/optim/sgd.h"

#include <fmt/format.h>

#include <algorithm>

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

namespace {

// The arguments of one kernel call.
struct SgdLists {
  std::vector<torch::Tensor> params;
  std::vector<torch::Tensor> grads;
  std::vector<torch::Tensor> momentum_buffers;  // empty without momentum
};

}  // namespace

Sgd::Sgd(const SgdOptions& options, std::vector<ParamGroup> groups) : Optimizer(std::move(groups)), options_(options) {
  for (const auto& group : groups_) momentum_buffers_.emplace_back(group.params.size());
}

bool Sgd::has_dampened_first_step(const std::vector<torch::Tensor>& momentum_buffers, const Gradients& gradients) const {
  if (options_.momentum == 0 || options_.dampening == 0) return false;
  return std::ranges::any_of(gradients.indices, [&](size_t index) { return !momentum_buffers[index].defined(); });
}

void Sgd::update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) {
  auto& momentum_buffers = momentum_buffers_[group];
  // The kernel needs a flag for the first update that is not skipped, because it ignores dampening. So the host must know whether this
  // update is skipped.
  const bool has_first_step = has_dampened_first_step(momentum_buffers, gradients);
  if (has_first_step && found_inf && found_inf->item<float>() != 0) return;

  SgdLists first;
  SgdLists others;
  for (size_t i = 0; i < gradients.indices.size(); ++i) {
    auto& buffer = momentum_buffers[gradients.indices[i]];
    const bool is_new = options_.momentum != 0 && !buffer.defined();
    // Without dampening, a buffer of zeros gives the correct first step without a flag.
    if (is_new) buffer = torch::zeros_like(gradients.params[i]);
    auto& lists = is_new && has_first_step ? first : others;
    lists.params.push_back(gradients.params[i]);
    lists.grads.push_back(gradients.grads[i]);
    if (options_.momentum != 0) lists.momentum_buffers.push_back(buffer);
  }
  const double weight_decay = weight_decay_of(group, options_.weight_decay);
  const auto run = [&](const SgdLists& lists, bool is_first_step) {
    if (lists.params.empty()) return;
    with_lr(group, lr, [&](const auto& rate) {
      at::_fused_sgd_(lists.params, lists.grads, lists.momentum_buffers, weight_decay, options_.momentum, rate, options_.dampening,
                      options_.nesterov, /*maximize=*/false, is_first_step, /*grad_scale=*/{}, found_inf);
    });
  };
  run(first, /*is_first_step=*/true);
  run(others, /*is_first_step=*/false);
}

state::Dict Sgd::param_state(size_t group, size_t index) const {
  state::Dict state;
  const auto& buffer = momentum_buffers_[group][index];
  if (buffer.defined()) state.add("momentum_buffer", buffer);
  return state;
}

void Sgd::load_param_state(size_t group, size_t index, const std::optional<state::View>& view) {
  auto& buffer = momentum_buffers_[group][index];
  buffer.reset();
  if (!view || view->at("momentum_buffer").is_none()) return;  // older PyTorch writes None for a parameter without momentum
  buffer = torch::empty_like(groups_[group].params[index]);
  view->at("momentum_buffer").copy_to(buffer);
}

void Sgd::add_options(size_t group, state::Dict& options) const {
  options.add("momentum", options_.momentum);
  options.add("dampening", options_.dampening);
  options.add("weight_decay", weight_decay_of(group, options_.weight_decay));
  options.add("nesterov", options_.nesterov);
  options.add("maximize", false);
  options.add("foreach", state::Tree());
  options.add("differentiable", false);
  options.add("fused", state::Tree());
}

void add_sgd(OptimizerRegistry& registry) {
  registry.add<SgdOptions>("sgd", "Stochastic gradient descent, with optional momentum.",
                           [](const auto& options, auto groups) { return std::make_unique<Sgd>(options, std::move(groups)); });
}

}  // namespace trainer::optim
