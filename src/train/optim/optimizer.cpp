#include "train/optim/optimizer.h"

#include <fmt/format.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <typeinfo>

#include "base/text.h"
#include "checkpoint/state/names.h"
#include "nn/batch_norm.h"
#include "trainer/error.h"
#include "trainer/nn.h"
#include "trainer/optim.h"
#include "trainer/state.h"
#include "trainer/torch.h"

namespace trainer::optim {
namespace {

// Strides of dimensions of size 1 do not affect the layout, and autograd may set them to any value.
bool same_layout(const torch::Tensor& a, const torch::Tensor& b) {
  for (int64_t i = 0; i < b.dim(); ++i) {
    if (b.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

// The gradient in the parameter's memory layout; undefined if the parameter has no gradient.
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

void check_groups(const state::View& param_groups, const std::vector<size_t>& group_sizes) {
  const auto elements = param_groups.elements();
  if (elements.size() != group_sizes.size()) {
    param_groups.fail(fmt::format("has {}, but the optimizer has {}; use the groups of the run that saved this state",
                                  counted(elements.size(), "group of parameters", "groups of parameters"), group_sizes.size()));
  }
  int64_t number = 0;
  for (size_t group = 0; group < group_sizes.size(); ++group) {
    const auto params = elements[group].at("params");
    const auto numbers = params.elements();
    if (numbers.size() != group_sizes[group]) {
      params.fail(fmt::format("has {}, but the optimizer has {} in this group; use the groups of the run that saved this state",
                              counted(numbers.size(), "parameter"), group_sizes[group]));
    }
    for (const auto& element : numbers) {
      if (element.integer() != number)
        element.fail(fmt::format("is {} instead of {}, but parameters must be numbered in order", element.integer(), number));
      ++number;
    }
  }
}

// `num_found`: the number of entries of `states` that belong to parameters.
void check_entries(const state::View& states, size_t num_found, int64_t num_params) {
  const auto num_stored = states.keys().size();
  if (num_found == num_stored) return;
  states.fail(fmt::format("has {} without a parameter in the model, which has {}; use the model of the run that saved this state",
                          counted(num_stored - num_found, "entry", "entries"), counted(num_params, "parameter")));
}

// The numbers of the layers of a network, from 0, as defined at group_parameters().
class LayerNumbers {
 public:
  explicit LayerNumbers(const torch::nn::Module& network) { add_children(network, ""); }

  int64_t count() const { return std::max<int64_t>(next_, 1); }
  int64_t of(const std::string& parameter) const {
    const auto found = std::ranges::find_if(layers_, [&](const auto& layer) { return parameter.starts_with(layer.first); });
    return found == layers_.end() ? 0 : found->second;
  }

 private:
  static bool is_list(const torch::nn::Module& module) {
    return typeid(module) == typeid(torch::nn::Module) || dynamic_cast<const torch::nn::SequentialImpl*>(&module) != nullptr ||
           dynamic_cast<const torch::nn::ModuleListImpl*>(&module) != nullptr ||
           dynamic_cast<const torch::nn::ModuleDictImpl*>(&module) != nullptr || dynamic_cast<const nn::LayerList*>(&module) != nullptr;
  }
  static bool is_norm(const torch::nn::Module& module) {
    return dynamic_cast<const nn::BatchNorm2d*>(&module) != nullptr || dynamic_cast<const nn::LayerNorm*>(&module) != nullptr ||
           dynamic_cast<const torch::nn::LayerNormImpl*>(&module) != nullptr || nn::is_libtorch_batch_norm(module);
  }

  void add_children(const torch::nn::Module& module, const std::string& prefix) {
    for (const auto& item : module.named_children()) {
      const auto& child = *item.value();
      const auto name = prefix + item.key() + '.';
      if (child.parameters().empty()) continue;
      if (is_list(child)) {
        add_children(child, name);
      } else {
        if (!is_norm(child) || next_ == 0) ++next_;
        layers_.emplace_back(name, next_ - 1);
      }
    }
  }

  std::vector<std::pair<std::string, int64_t>> layers_;
  int64_t next_ = 0;
};

}  // namespace

std::vector<ParamGroup> group_parameters(const torch::nn::Module& model, bool decay_norm_and_bias,
                                         const std::vector<ParameterGroupOptions>& sections, double layer_decay) {
  const LayerNumbers numbers(model);
  // The key: the number of the section (0: none), whether weight decay is off, and the layer.
  std::map<std::tuple<size_t, bool, int64_t>, ParamGroup> groups;
  for (const auto& item : model.named_parameters()) {
    const auto& param = item.value();
    if (!param.requires_grad()) continue;
    const auto section =
        std::ranges::find_if(sections, [&](const auto& candidate) { return state::is_in(item.key(), candidate.parameters); });
    const size_t number = section == sections.end() ? 0 : static_cast<size_t>(section - sections.begin()) + 1;
    ParamGroup options;
    if (number > 0) options = {.params = {}, .lr_factor = section->lr_factor, .weight_decay = section->weight_decay};
    options.decay = decay_norm_and_bias || param.dim() >= 2 || options.weight_decay;
    const int64_t layer = layer_decay == 1 ? 0 : numbers.of(item.key());
    if (layer_decay != 1) options.lr_factor *= std::pow(layer_decay, numbers.count() - 1 - layer);
    auto& group = groups.try_emplace({number, !options.decay, layer}, options).first->second;
    group.params.push_back(param);
  }
  std::vector<ParamGroup> all;
  for (auto& [key, group] : groups) all.push_back(std::move(group));
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

void Optimizer::use_lr_tensors() {
  lr_tensors_.clear();
  for (const auto& group : groups_) lr_tensors_.push_back(torch::zeros({}, group.params.front().options().dtype(torch::kFloat32)));
}

void Optimizer::set_lr(double lr) {
  for (size_t i = 0; i < lr_tensors_.size(); ++i) lr_tensors_[i].fill_(lr * groups_[i].lr_factor);
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

void Optimizer::perturb_parameters() {
  TORCH_CHECK(false,
              "Optimizer::perturb_parameters: this optimizer needs no second pass; call it only if needs_second_pass() returns true");
}

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

void Optimizer::load_state(const state::View& view) {
  std::vector<size_t> group_sizes;
  for (const auto& group : groups_) group_sizes.push_back(group.params.size());
  check_groups(view.at("param_groups"), group_sizes);
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
  check_entries(states, num_found, number);
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

// The state of LibTorch's own optimizers, declared in trainer/optim.h.

namespace trainer::optim {
namespace {

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

// The format of the state and options of one class of optimizers.
class Format {
 public:
  virtual ~Format() = default;
  virtual state::Dict state(const OptimizerParamState& state) const = 0;
  virtual std::unique_ptr<OptimizerParamState> read(const state::View& view, const torch::Tensor& parameter,
                                                    const OptimizerOptions& options) const = 0;
  virtual void add_options(const OptimizerOptions& options, state::Dict& dict) const = 0;
  // Whether every parameter has a state, also before its first update.
  virtual bool has_state_from_the_start() const { return false; }
};

// Options that Python's optimizers have and LibTorch's do not, with their defaults.
void add_common_options(state::Dict& dict, bool has_fused = true) {
  dict.add("maximize", false);
  dict.add("foreach", state::Tree());
  dict.add("differentiable", false);
  if (has_fused) dict.add("fused", state::Tree());
}

// Python keeps the number of steps in a float32 scalar.
torch::Tensor step_tensor(int64_t step) { return torch::tensor(static_cast<float>(step)); }

int64_t read_step(const state::View& state) {
  const auto step = state.at("step");
  if (step.tensor().numel() != 1) step.fail("does not have exactly one element");
  return static_cast<int64_t>(step.tensor().item<double>());
}

torch::Tensor read_like(const state::View& view, const torch::Tensor& parameter) {
  auto tensor = torch::empty_like(parameter, torch::TensorOptions().requires_grad(false));
  view.copy_to(tensor);
  return tensor;
}

class SgdFormat : public Format {
 public:
  state::Dict state(const OptimizerParamState& state) const override {
    state::Dict dict;
    dict.add("momentum_buffer", dynamic_cast<const torch::optim::SGDParamState&>(state).momentum_buffer());
    return dict;
  }
  std::unique_ptr<OptimizerParamState> read(const state::View& view, const torch::Tensor& parameter,
                                            const OptimizerOptions& /*options*/) const override {
    const auto buffer = view.find("momentum_buffer");
    if (!buffer || buffer->is_none()) return nullptr;
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer(read_like(*buffer, parameter));
    return state;
  }
  void add_options(const OptimizerOptions& options, state::Dict& dict) const override {
    const auto& sgd = dynamic_cast<const torch::optim::SGDOptions&>(options);
    dict.add("momentum", sgd.momentum());
    dict.add("dampening", sgd.dampening());
    dict.add("weight_decay", sgd.weight_decay());
    dict.add("nesterov", sgd.nesterov());
    add_common_options(dict);
  }
};

// The format of Adam and AdamW.
template <class ParamState, class Options, bool kDecoupled>
class AdamFormat : public Format {
 public:
  state::Dict state(const OptimizerParamState& state) const override {
    const auto& adam = dynamic_cast<const ParamState&>(state);
    state::Dict dict;
    dict.add("step", step_tensor(adam.step()));
    dict.add("exp_avg", adam.exp_avg());
    dict.add("exp_avg_sq", adam.exp_avg_sq());
    if (adam.max_exp_avg_sq().defined()) dict.add("max_exp_avg_sq", adam.max_exp_avg_sq());
    return dict;
  }
  std::unique_ptr<OptimizerParamState> read(const state::View& view, const torch::Tensor& parameter,
                                            const OptimizerOptions& options) const override {
    auto state = std::make_unique<ParamState>();
    state->step(read_step(view));
    state->exp_avg(read_like(view.at("exp_avg"), parameter));
    state->exp_avg_sq(read_like(view.at("exp_avg_sq"), parameter));
    if (dynamic_cast<const Options&>(options).amsgrad()) state->max_exp_avg_sq(read_like(view.at("max_exp_avg_sq"), parameter));
    return state;
  }
  void add_options(const OptimizerOptions& options, state::Dict& dict) const override {
    const auto& adam = dynamic_cast<const Options&>(options);
    dict.add("betas", state::List{std::get<0>(adam.betas()), std::get<1>(adam.betas())});
    dict.add("eps", adam.eps());
    dict.add("weight_decay", adam.weight_decay());
    dict.add("amsgrad", adam.amsgrad());
    dict.add("capturable", false);
    dict.add("decoupled_weight_decay", kDecoupled);
    add_common_options(dict);
  }
};

class RmspropFormat : public Format {
 public:
  state::Dict state(const OptimizerParamState& state) const override {
    const auto& rmsprop = dynamic_cast<const torch::optim::RMSpropParamState&>(state);
    state::Dict dict;
    dict.add("step", step_tensor(rmsprop.step()));
    dict.add("square_avg", rmsprop.square_avg());
    if (rmsprop.momentum_buffer().defined()) dict.add("momentum_buffer", rmsprop.momentum_buffer());
    if (rmsprop.grad_avg().defined()) dict.add("grad_avg", rmsprop.grad_avg());
    return dict;
  }
  std::unique_ptr<OptimizerParamState> read(const state::View& view, const torch::Tensor& parameter,
                                            const OptimizerOptions& options) const override {
    const auto& rmsprop = dynamic_cast<const torch::optim::RMSpropOptions&>(options);
    auto state = std::make_unique<torch::optim::RMSpropParamState>();
    state->step(read_step(view));
    state->square_avg(read_like(view.at("square_avg"), parameter));
    if (rmsprop.momentum() > 0) state->momentum_buffer(read_like(view.at("momentum_buffer"), parameter));
    if (rmsprop.centered()) state->grad_avg(read_like(view.at("grad_avg"), parameter));
    return state;
  }
  void add_options(const OptimizerOptions& options, state::Dict& dict) const override {
    const auto& rmsprop = dynamic_cast<const torch::optim::RMSpropOptions&>(options);
    dict.add("momentum", rmsprop.momentum());
    dict.add("alpha", rmsprop.alpha());
    dict.add("eps", rmsprop.eps());
    dict.add("centered", rmsprop.centered());
    dict.add("weight_decay", rmsprop.weight_decay());
    dict.add("capturable", false);
    add_common_options(dict, /*has_fused=*/false);
  }
};

class AdagradFormat : public Format {
 public:
  state::Dict state(const OptimizerParamState& state) const override {
    const auto& adagrad = dynamic_cast<const torch::optim::AdagradParamState&>(state);
    state::Dict dict;
    dict.add("step", step_tensor(adagrad.step()));
    dict.add("sum", adagrad.sum());
    return dict;
  }
  std::unique_ptr<OptimizerParamState> read(const state::View& view, const torch::Tensor& parameter,
                                            const OptimizerOptions& /*options*/) const override {
    auto state = std::make_unique<torch::optim::AdagradParamState>();
    state->step(read_step(view));
    state->sum(read_like(view.at("sum"), parameter));
    return state;
  }
  void add_options(const OptimizerOptions& options, state::Dict& dict) const override {
    const auto& adagrad = dynamic_cast<const torch::optim::AdagradOptions&>(options);
    dict.add("lr_decay", adagrad.lr_decay());
    dict.add("eps", adagrad.eps());
    dict.add("weight_decay", adagrad.weight_decay());
    dict.add("initial_accumulator_value", adagrad.initial_accumulator_value());
    add_common_options(dict);
  }
  bool has_state_from_the_start() const override { return true; }
};

std::unique_ptr<Format> format_of(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (dynamic_cast<const SGD*>(&optimizer) != nullptr) return std::make_unique<SgdFormat>();
  if (dynamic_cast<const Adam*>(&optimizer) != nullptr) return std::make_unique<AdamFormat<AdamParamState, AdamOptions, false>>();
  if (dynamic_cast<const AdamW*>(&optimizer) != nullptr) return std::make_unique<AdamFormat<AdamWParamState, AdamWOptions, true>>();
  if (dynamic_cast<const RMSprop*>(&optimizer) != nullptr) return std::make_unique<RmspropFormat>();
  if (dynamic_cast<const Adagrad*>(&optimizer) != nullptr) return std::make_unique<AdagradFormat>();
  throw UsageError("the state of this optimizer cannot be saved or loaded; use torch::optim::SGD, Adam, AdamW, RMSprop or Adagrad");
}

}  // namespace

state::Tree state_of(torch::optim::Optimizer& optimizer) {
  const auto format = format_of(optimizer);
  state::Dict states;
  state::List groups;
  int64_t number = 0;
  for (const auto& group : optimizer.param_groups()) {
    state::List numbers;
    for (const auto& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found != optimizer.state().end()) states.add(number, format->state(*found->second));
      numbers.emplace_back(number++);
    }
    state::Dict options;
    options.add("lr", group.options().get_lr());
    format->add_options(group.options(), options);
    options.add("params", std::move(numbers));
    groups.emplace_back(std::move(options));
  }
  state::Dict tree;
  tree.add("state", std::move(states));
  tree.add("param_groups", std::move(groups));
  return tree;
}

void load_state_of(torch::optim::Optimizer& optimizer, const state::View& view) {
  const auto format = format_of(optimizer);
  const auto states = view.at("state");
  auto& own = optimizer.param_groups();
  std::vector<size_t> group_sizes;
  for (const auto& group : own) group_sizes.push_back(group.params().size());
  check_groups(view.at("param_groups"), group_sizes);
  const auto groups = view.at("param_groups").elements();
  const torch::NoGradGuard no_grad;
  int64_t number = 0;
  size_t num_found = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].options().set_lr(groups[i].at("lr").number());
    for (const auto& parameter : own[i].params()) {
      const auto stored = states.find(number++);
      if (stored) ++num_found;
      if (!stored && format->has_state_from_the_start())
        states.fail(fmt::format("has no entry for parameter {}, but this optimizer has one for each; use the state of such an optimizer",
                                number - 1));
      auto state = stored ? format->read(*stored, parameter, own[i].options()) : nullptr;
      optimizer.state().erase(parameter.unsafeGetTensorImpl());
      if (state) optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
    }
  }
  check_entries(states, num_found, number);
}

namespace {

// One of LibTorch's optimizers for each group.
class LibtorchOptimizer final : public Optimizer {
 public:
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(const ParamGroup& group)>;

  LibtorchOptimizer(std::vector<ParamGroup> groups, const Make& make) : Optimizer(std::move(groups)) {
    for (const auto& group : groups_) optimizers_.push_back(make(group));
    // An experiment is checked without parameters.
    if (groups_.empty()) optimizers_.push_back(make({}));
    for (const auto& optimizer : optimizers_) {
      if (!optimizer) throw UsageError("the function that makes an optimizer of LibTorch returned null");
    }
    format_ = format_of(*optimizers_.front());
    base_lr_ = optimizers_.front()->defaults().get_lr();
    for (size_t i = 0; i < groups_.size(); ++i) check_group(*optimizers_[i], groups_[i]);
  }

  double base_lr() const override { return base_lr_; }

 private:
  void check_group(const torch::optim::Optimizer& optimizer, const ParamGroup& group) const {
    const auto is_same = [](const torch::Tensor& a, const torch::Tensor& b) { return a.is_same(b); };
    const auto& own = optimizer.param_groups();
    if (own.size() != 1 || !std::ranges::equal(own.front().params(), group.params, is_same)) {
      throw UsageError("an optimizer of LibTorch must have one group with exactly the parameters of its ParamGroup, in the same order");
    }
    if (typeid(optimizer) != typeid(*optimizers_.front()) || own.front().options().get_lr() != base_lr_) {
      throw UsageError("the optimizers of LibTorch for all groups of parameters must have the same class and learning rate");
    }
  }

  void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) override {
    if (found_inf && found_inf->item<float>() != 0) return;
    auto& optimizer = *optimizers_[group];
    auto& params = optimizer.param_groups().front().params();
    // The parameters that set_skip_zero_grads() skips.
    for (size_t i = 0; i < params.size(); ++i) {
      if (!std::ranges::binary_search(gradients.indices, i)) params[i].mutable_grad().reset();
    }
    optimizer.param_groups().front().options().set_lr(lr);
    optimizer.step();
  }

  state::Dict param_state(size_t group, size_t index) const override {
    const auto& states = optimizers_[group]->state();
    const auto found = states.find(groups_[group].params[index].unsafeGetTensorImpl());
    return found == states.end() ? state::Dict() : format_->state(*found->second);
  }
  void load_param_state(size_t group, size_t index, const std::optional<state::View>& view) override {
    auto& optimizer = *optimizers_[group];
    const auto& parameter = groups_[group].params[index];
    const auto& options = optimizer.param_groups().front().options();
    if (!view && format_->has_state_from_the_start()) return;
    auto state = view ? format_->read(*view, parameter, options) : nullptr;
    optimizer.state().erase(parameter.unsafeGetTensorImpl());
    if (state) optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  }
  void add_options(size_t group, state::Dict& options) const override {
    format_->add_options(optimizers_[group]->param_groups().front().options(), options);
  }

  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
  std::unique_ptr<Format> format_;
  double base_lr_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> of_libtorch(std::vector<ParamGroup> groups,
                                       std::function<std::unique_ptr<torch::optim::Optimizer>(const ParamGroup& group)> make) {
  return std::make_unique<LibtorchOptimizer>(std::move(groups), make);
}

}  // namespace trainer::optim
