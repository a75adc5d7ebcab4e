#include "train/optim/optimizer.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "base/text.h"
#include "checkpoint/state/names.h"
#include "trainer/state.h"

namespace trainer::optim {
namespace {

// Strides of dimensions of size 1 do not affect the layout, and autograd may set them to any value.
bool same_layout(const torch::Tensor& a, const torch::Tensor& b) {
  for (int64_t i = 0; i < b.dim(); ++i) {
    if (b.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

// The gradient in the parameter's memory layout; undefined if the parameter has none.
torch::Tensor aligned_grad(const torch::Tensor& param) {
  const auto& grad = param.grad();
  if (!grad.defined() || same_layout(grad, param)) return grad;
  return torch::empty_like(param).copy_(grad);
}

// For each of `tensors` (at least one), whether it has a nonzero element; NaN counts as nonzero. Waits for the device once.
std::vector<bool> have_nonzero(const std::vector<torch::Tensor>& tensors) {
  // The 1-norm is used because the squares of the 2-norm can underflow, and the maximum of an empty tensor is an error.
  const auto flags = at::stack(at::_foreach_norm(tensors, 1)).ne(0).cpu();
  const auto* begin = flags.const_data_ptr<bool>();
  return std::vector<bool>(begin, begin + flags.numel());
}

}  // namespace

std::vector<ParamGroup> group_parameters(const torch::nn::Module& model, bool decay_norm_and_bias,
                                         const std::vector<ParameterGroupOptions>& sections) {
  // Two for the parameters that no section names, and two for each section: with and without weight decay.
  std::vector<ParamGroup> all(2 * (sections.size() + 1));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].decay = i % 2 == 0;
    if (i < 2) continue;
    all[i].lr_factor = sections[i / 2 - 1].lr_factor;
    all[i].weight_decay = sections[i / 2 - 1].weight_decay;
  }
  for (const auto& item : model.named_parameters()) {
    const auto& param = item.value();
    if (!param.requires_grad()) continue;
    const auto section =
        std::ranges::find_if(sections, [&](const auto& candidate) { return state::is_in(item.key(), candidate.parameters); });
    const size_t number = section == sections.end() ? 0 : static_cast<size_t>(section - sections.begin()) + 1;
    const bool decays = decay_norm_and_bias || param.dim() >= 2 || all[2 * number].weight_decay;
    all[2 * number + (decays ? 0 : 1)].params.push_back(param);
  }
  std::erase_if(all, [](const ParamGroup& group) { return group.params.empty(); });
  return all;
}

double Optimizer::weight_decay_of(size_t group, double configured) const {
  return groups_[group].weight_decay.value_or(groups_[group].decay ? configured : 0);
}

void Optimizer::zero_grad() {
  for (auto& group : groups_) {
    for (auto& param : group.params) param.mutable_grad().reset();
  }
}

std::vector<torch::Tensor> Optimizer::parameters() const {
  std::vector<torch::Tensor> all;
  for (const auto& group : groups_) all.insert(all.end(), group.params.begin(), group.params.end());
  return all;
}

std::vector<Optimizer::Gradients> Optimizer::gather() const {
  std::vector<Gradients> all;
  for (const auto& group : groups_) {
    auto& gradients = all.emplace_back();
    for (size_t i = 0; i < group.params.size(); ++i) {
      const auto grad = aligned_grad(group.params[i]);
      if (grad.defined()) gradients.add(i, group.params[i], grad);
    }
  }
  return all;
}

void Optimizer::step(double lr, const std::optional<torch::Tensor>& found_inf) {
  const torch::NoGradGuard no_grad;
  restore_parameters();
  auto all = gather();
  if (skip_zero_grads_) drop_zeros(all);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].params.empty()) update(i, all[i], lr * groups_[i].lr_factor, found_inf);
  }
}

void Optimizer::drop_zeros(std::vector<Gradients>& all) {
  std::vector<torch::Tensor> grads;
  for (const auto& gradients : all) grads.insert(grads.end(), gradients.grads.begin(), gradients.grads.end());
  if (grads.empty()) return;
  const auto keep = have_nonzero(grads);
  size_t next = 0;
  for (auto& gradients : all) {
    Gradients kept;
    for (size_t i = 0; i < gradients.indices.size(); ++i) {
      if (keep[next++]) kept.add(gradients.indices[i], gradients.params[i], gradients.grads[i]);
    }
    gradients = std::move(kept);
  }
}

void Optimizer::perturb_parameters() { TORCH_CHECK(false, "Optimizer::perturb_parameters: this optimizer needs no second pass"); }

state::Tree Optimizer::state(double lr, const state::Dict& scheduler_options) const {
  state::Dict states;
  state::List param_groups;
  int64_t number = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    state::List numbers;
    for (size_t i = 0; i < groups_[group].params.size(); ++i, ++number) {
      auto state = param_state(group, i);
      if (!state.items().empty()) states.add(number, std::move(state));
      numbers.emplace_back(number);
    }
    state::Dict options;
    options.add("lr", lr * lr_factor(group));
    add_options(group, options);
    for (const auto& [key, value] : scheduler_options.items()) options.add(key, std::get<double>(value.value()) * lr_factor(group));
    options.add("params", std::move(numbers));
    param_groups.emplace_back(std::move(options));
  }
  state::Dict tree;
  tree.add("state", std::move(states));
  tree.add("param_groups", std::move(param_groups));
  return tree;
}

void Optimizer::check_groups(const state::View& param_groups) const {
  const auto elements = param_groups.elements();
  if (elements.size() != groups_.size()) {
    param_groups.fail(
        fmt::format("has {} instead of {}", counted(elements.size(), "group of parameters", "groups of parameters"), groups_.size()));
  }
  int64_t number = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const auto params = elements[group].at("params");
    const auto numbers = params.elements();
    if (numbers.size() != groups_[group].params.size()) {
      params.fail(fmt::format("has {} instead of {}", counted(numbers.size(), "parameter"), groups_[group].params.size()));
    }
    for (const auto& element : numbers) {
      if (element.integer() != number)
        element.fail(fmt::format("is {}, but parameters are numbered in order: {}", element.integer(), number));
      ++number;
    }
  }
}

void Optimizer::load_state(const state::View& view) {
  check_groups(view.at("param_groups"));
  const auto states = view.at("state");
  size_t num_found = 0;
  int64_t number = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (size_t i = 0; i < groups_[group].params.size(); ++i, ++number) {
      const auto state = states.find(number);
      load_param_state(group, i, state);
      if (state) ++num_found;
    }
  }
  if (num_found != states.keys().size()) {
    states.fail(fmt::format("has {} beyond those of the {}", counted(states.keys().size() - num_found, "entry", "entries"),
                            counted(number, "parameter")));
  }
}

std::unique_ptr<Optimizer> make_optimizer(const ComponentConfig& component, std::vector<ParamGroup> groups, bool skip_zero_grads) {
  auto optimizer = optimizer_registry().make(component, std::move(groups));
  optimizer->set_skip_zero_grads(skip_zero_grads);
  return optimizer;
}

torch::Tensor total_norm(const std::vector<torch::Tensor>& tensors) {
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(tensors, 2)), 2);
}

torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> grads;
  for (const auto& param : parameters) {
    if (param.grad().defined()) grads.push_back(param.grad());
  }
  if (grads.empty()) return parameters.empty() ? torch::zeros({}) : torch::zeros({}, parameters.front().options());

  const auto norm = total_norm(grads);
  at::_foreach_mul_(grads, (max_norm / (norm + 1e-6)).clamp_max(1));
  return norm;
}

}  // namespace trainer::optim
