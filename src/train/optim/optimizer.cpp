#include "train/optim/optimizer.h"

#include <fmt/format.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
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

// torch.optim's state_dict(): state_of(group, index) is the state of a parameter, and options_of(group) the options of a group.
template <class StateOf, class OptionsOf>
state::Tree make_state_dict(const std::vector<size_t>& group_sizes, const StateOf& state_of, const OptionsOf& options_of) {
  state::Dict states;
  state::List groups;
  int64_t number = 0;
  for (size_t group = 0; group < group_sizes.size(); ++group) {
    state::List numbers;
    for (size_t i = 0; i < group_sizes[group]; ++i, ++number) {
      auto state = state_of(group, i);
      if (!state.items().empty()) states.add(number, std::move(state));
      numbers.emplace_back(number);
    }
    auto options = options_of(group);
    options.add("params", std::move(numbers));
    groups.emplace_back(std::move(options));
  }
  state::Dict tree;
  tree.add("state", std::move(states));
  tree.add("param_groups", std::move(groups));
  return tree;
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

// Calls load(group, index, view of the parameter's state or nullopt) for each parameter.
template <class Load>
void load_state_dict(const state::View& view, const std::vector<size_t>& group_sizes, const Load& load) {
  check_groups(view.at("param_groups"), group_sizes);
  const auto states = view.at("state");
  size_t num_found = 0;
  int64_t number = 0;
  for (size_t group = 0; group < group_sizes.size(); ++group) {
    for (size_t i = 0; i < group_sizes[group]; ++i, ++number) {
      const auto state = states.find(number);
      load(group, i, state);
      if (state) ++num_found;
    }
  }
  const auto num_stored = states.keys().size();
  if (num_found == num_stored) return;
  states.fail(fmt::format("has {} without a parameter in the model, which has {}; use the model of the run that saved this state",
                          counted(num_stored - num_found, "entry", "entries"), counted(number, "parameter")));
}

std::vector<size_t> sizes_of(const std::vector<ParamGroup>& groups) {
  std::vector<size_t> sizes;
  for (const auto& group : groups) sizes.push_back(group.params.size());
  return sizes;
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

Optimizer::Optimizer(std::vector<ParamGroup> groups, std::vector<std::string> state_names)
    : groups_(std::move(groups)), state_names_(std::move(state_names)) {
  for (const auto& group : groups_) states_.emplace_back(group.params.size());
}

Optimizer::Gradients Optimizer::Gradients::select(const std::function<bool(size_t position)>& is_selected) const {
  Gradients selected;
  selected.states.resize(states.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!is_selected(i)) continue;
    selected.indices.push_back(indices[i]);
    selected.params.push_back(params[i]);
    selected.grads.push_back(grads[i]);
    if (!are_new.empty()) selected.are_new.push_back(are_new[i]);
    for (size_t k = 0; k < states.size(); ++k) selected.states[k].push_back(states[k][i]);
  }
  return selected;
}

std::vector<torch::Tensor> Optimizer::Gradients::changed() const {
  auto tensors = params;
  for (const auto& list : states) std::ranges::copy_if(list, std::back_inserter(tensors), &torch::Tensor::defined);
  // Scalars last, so that they do not split the groups of large tensors in change_unless().
  std::ranges::stable_partition(tensors, [](const torch::Tensor& tensor) { return tensor.dim() > 0; });
  return tensors;
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
      if (!grad.defined()) continue;
      gradients.indices.push_back(i);
      gradients.params.push_back(group.params[i]);
      gradients.grads.push_back(grad);
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
    if (all[i].params.empty()) continue;
    add_states(i, all[i]);
    update(i, all[i], lr * groups_[i].lr_factor, found_inf);
  }
}

void Optimizer::add_states(size_t group, Gradients& gradients) {
  gradients.states.resize(state_names_.size());
  for (size_t i = 0; i < gradients.indices.size(); ++i) {
    auto& state = states_[group][gradients.indices[i]];
    gradients.are_new.push_back(state.empty());
    if (state.empty()) state = first_state(gradients.params[i]);
    for (size_t k = 0; k < state.size(); ++k) gradients.states[k].push_back(state[k]);
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
  for (auto& gradients : all) gradients = gradients.select([&](size_t /*position*/) { return keep[next++]; });
}

void Optimizer::perturb_parameters() {
  TORCH_CHECK(false,
              "Optimizer::perturb_parameters: this optimizer needs no second pass; call it only if needs_second_pass() returns true");
}

std::vector<torch::Tensor> Optimizer::first_state(const torch::Tensor& param) const {
  std::vector<torch::Tensor> state;
  for (size_t i = 0; i < state_names_.size(); ++i) state.push_back(torch::zeros_like(param));
  return state;
}

state::Dict Optimizer::param_state(size_t group, size_t index) const {
  state::Dict dict;
  const auto& state = states_[group][index];
  for (size_t i = 0; i < state.size(); ++i) {
    if (state[i].defined()) dict.add(state_names_[i], state[i]);
  }
  return dict;
}

void Optimizer::load_param_state(size_t group, size_t index, const std::optional<state::View>& view) {
  auto& state = states_[group][index];
  state.clear();
  if (!view) return;
  state = first_state(groups_[group].params[index]);
  for (size_t i = 0; i < state.size(); ++i) {
    if (state[i].defined()) view->at(state_names_[i]).copy_to(state[i]);
  }
}

state::Tree Optimizer::state(double lr, const state::Dict& scheduler_options) const {
  const auto options_of = [&](size_t group) {
    state::Dict options;
    options.add("lr", lr * lr_factor(group));
    add_options(group, options);
    for (const auto& [key, value] : scheduler_options.items()) options.add(key, std::get<double>(value.value()) * lr_factor(group));
    return options;
  };
  return make_state_dict(
      sizes_of(groups_), [&](size_t group, size_t index) { return param_state(group, index); }, options_of);
}

void Optimizer::load_state(const state::View& view) {
  load_state_dict(view, sizes_of(groups_), [&](size_t group, size_t index, const auto& state) { load_param_state(group, index, state); });
}

namespace {

// Adds options that Python's optimizers have and these do not, with their defaults.
void add_defaults(state::Dict& group, std::initializer_list<const char*> names) {
  for (const std::string name : names) group.add(name, name == "foreach" || name == "fused" ? state::Tree() : state::Tree(false));
}

}  // namespace

void add_sgd_options(state::Dict& group, double momentum, double dampening, double weight_decay, bool nesterov) {
  group.add("momentum", momentum);
  group.add("dampening", dampening);
  group.add("weight_decay", weight_decay);
  group.add("nesterov", nesterov);
  add_defaults(group, {"maximize", "foreach", "differentiable", "fused"});
}

void add_adam_options(state::Dict& group, double beta1, double beta2, double eps, double weight_decay, bool amsgrad, bool decoupled) {
  group.add("betas", state::List{beta1, beta2});
  group.add("eps", eps);
  group.add("weight_decay", weight_decay);
  group.add("amsgrad", amsgrad);
  add_defaults(group, {"maximize", "foreach", "capturable", "differentiable", "fused"});
  group.add("decoupled_weight_decay", decoupled);
}

void add_rmsprop_options(state::Dict& group, double momentum, double alpha, double eps, bool centered, double weight_decay) {
  group.add("momentum", momentum);
  group.add("alpha", alpha);
  group.add("eps", eps);
  group.add("centered", centered);
  group.add("weight_decay", weight_decay);
  add_defaults(group, {"capturable", "maximize", "foreach", "differentiable"});
}

std::unique_ptr<Optimizer> make_optimizer(const ComponentConfig& component, std::vector<ParamGroup> groups, bool skip_zero_grads) {
  auto optimizer = optimizer_registry().make(component, std::move(groups));
  optimizer->set_skip_zero_grads(skip_zero_grads);
  return optimizer;
}

std::vector<torch::Tensor> gradients_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> grads;
  for (const auto& param : parameters) {
    if (param.grad().defined()) grads.push_back(param.grad());
  }
  return grads;
}

torch::Tensor total_norm(const std::vector<torch::Tensor>& tensors) {
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(tensors, 2)), 2);
}

torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm) {
  const torch::NoGradGuard no_grad;
  const auto grads = gradients_of(parameters);
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

// The state of a parameter.
struct Fields {
  int64_t* step = nullptr;  // null: the class does not count steps
  // The tensors that exist with the optimizer's options.
  std::vector<std::pair<const char*, torch::Tensor*>> tensors;
};

// A class of optimizers.
struct Format {
  std::unique_ptr<OptimizerParamState> (*make_state)();
  Fields (*fields_of)(OptimizerParamState& state, const OptimizerOptions& options);
  void (*add_options)(state::Dict& group, const OptimizerOptions& options);
  // Whether every parameter has a state, also before its first update.
  bool has_state_from_the_start = false;

  state::Dict state_of(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter, const OptimizerOptions& options) const {
    state::Dict dict;
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) return dict;
    const auto fields = fields_of(*found->second, options);
    // Python keeps the number of steps in a float32 scalar.
    if (fields.step != nullptr) dict.add("step", torch::tensor(static_cast<float>(*fields.step)));
    for (const auto& [name, tensor] : fields.tensors) dict.add(name, *tensor);
    return dict;
  }

  void load(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter, const OptimizerOptions& options,
            const std::optional<state::View>& view) const {
    auto state = view ? read(*view, parameter, options) : nullptr;
    optimizer.state().erase(parameter.unsafeGetTensorImpl());
    if (state) optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  }

 private:
  std::unique_ptr<OptimizerParamState> read(const state::View& view, const torch::Tensor& parameter,
                                            const OptimizerOptions& options) const {
    auto state = make_state();
    const auto fields = fields_of(*state, options);
    if (fields.step != nullptr) {
      const auto step = view.at("step");
      if (step.tensor().numel() != 1) step.fail("does not have exactly one element");
      *fields.step = static_cast<int64_t>(step.tensor().item<double>());
    }
    for (const auto& [name, tensor] : fields.tensors) {
      const auto stored = view.find(name);
      // SGD has no momentum buffer before the first update; older PyTorch then writes None.
      if (fields.step == nullptr && (!stored || stored->is_none())) return nullptr;
      *tensor = torch::empty_like(parameter, torch::TensorOptions().requires_grad(false));
      view.at(name).copy_to(*tensor);
    }
    return state;
  }
};

template <class State>
std::unique_ptr<OptimizerParamState> make_state() {
  return std::make_unique<State>();
}

// Adam and AdamW.
template <class State, class Options, bool kDecoupled>
constexpr Format kAdam = {.make_state = make_state<State>,
                          .fields_of =
                              [](OptimizerParamState& state, const OptimizerOptions& options) {
                                auto& adam = dynamic_cast<State&>(state);
                                Fields fields{&adam.step(), {{"exp_avg", &adam.exp_avg()}, {"exp_avg_sq", &adam.exp_avg_sq()}}};
                                if (dynamic_cast<const Options&>(options).amsgrad())
                                  fields.tensors.emplace_back("max_exp_avg_sq", &adam.max_exp_avg_sq());
                                return fields;
                              },
                          .add_options =
                              [](state::Dict& group, const OptimizerOptions& options) {
                                const auto& adam = dynamic_cast<const Options&>(options);
                                const auto& [beta1, beta2] = adam.betas();
                                add_adam_options(group, beta1, beta2, adam.eps(), adam.weight_decay(), adam.amsgrad(), kDecoupled);
                              }};

constexpr Format kSgd = {.make_state = make_state<torch::optim::SGDParamState>,
                         .fields_of =
                             [](OptimizerParamState& state, const OptimizerOptions& /*options*/) {
                               auto& sgd = dynamic_cast<torch::optim::SGDParamState&>(state);
                               return Fields{nullptr, {{"momentum_buffer", &sgd.momentum_buffer()}}};
                             },
                         .add_options =
                             [](state::Dict& group, const OptimizerOptions& options) {
                               const auto& sgd = dynamic_cast<const torch::optim::SGDOptions&>(options);
                               add_sgd_options(group, sgd.momentum(), sgd.dampening(), sgd.weight_decay(), sgd.nesterov());
                             }};

constexpr Format kRmsprop = {.make_state = make_state<torch::optim::RMSpropParamState>,
                             .fields_of =
                                 [](OptimizerParamState& state, const OptimizerOptions& options) {
                                   auto& rmsprop = dynamic_cast<torch::optim::RMSpropParamState&>(state);
                                   const auto& used = dynamic_cast<const torch::optim::RMSpropOptions&>(options);
                                   Fields fields{&rmsprop.step(), {{"square_avg", &rmsprop.square_avg()}}};
                                   if (used.momentum() > 0) fields.tensors.emplace_back("momentum_buffer", &rmsprop.momentum_buffer());
                                   if (used.centered()) fields.tensors.emplace_back("grad_avg", &rmsprop.grad_avg());
                                   return fields;
                                 },
                             .add_options =
                                 [](state::Dict& group, const OptimizerOptions& options) {
                                   const auto& rmsprop = dynamic_cast<const torch::optim::RMSpropOptions&>(options);
                                   add_rmsprop_options(group, rmsprop.momentum(), rmsprop.alpha(), rmsprop.eps(), rmsprop.centered(),
                                                       rmsprop.weight_decay());
                                 }};

constexpr Format kAdagrad = {.make_state = make_state<torch::optim::AdagradParamState>,
                             .fields_of =
                                 [](OptimizerParamState& state, const OptimizerOptions& /*options*/) {
                                   auto& adagrad = dynamic_cast<torch::optim::AdagradParamState&>(state);
                                   return Fields{&adagrad.step(), {{"sum", &adagrad.sum()}}};
                                 },
                             .add_options =
                                 [](state::Dict& group, const OptimizerOptions& options) {
                                   const auto& adagrad = dynamic_cast<const torch::optim::AdagradOptions&>(options);
                                   group.add("lr_decay", adagrad.lr_decay());
                                   group.add("eps", adagrad.eps());
                                   group.add("weight_decay", adagrad.weight_decay());
                                   group.add("initial_accumulator_value", adagrad.initial_accumulator_value());
                                   add_defaults(group, {"maximize", "foreach", "differentiable", "fused"});
                                 },
                             .has_state_from_the_start = true};

const Format& format_of(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (dynamic_cast<const SGD*>(&optimizer) != nullptr) return kSgd;
  if (dynamic_cast<const Adam*>(&optimizer) != nullptr) return kAdam<AdamParamState, AdamOptions, false>;
  if (dynamic_cast<const AdamW*>(&optimizer) != nullptr) return kAdam<AdamWParamState, AdamWOptions, true>;
  if (dynamic_cast<const RMSprop*>(&optimizer) != nullptr) return kRmsprop;
  if (dynamic_cast<const Adagrad*>(&optimizer) != nullptr) return kAdagrad;
  throw UsageError("the state of this optimizer cannot be saved or loaded; use torch::optim::SGD, Adam, AdamW, RMSprop or Adagrad");
}

std::vector<size_t> sizes_of(const torch::optim::Optimizer& optimizer) {
  std::vector<size_t> sizes;
  for (const auto& group : optimizer.param_groups()) sizes.push_back(group.params().size());
  return sizes;
}

}  // namespace

state::Tree state_of(torch::optim::Optimizer& optimizer) {
  const auto& format = format_of(optimizer);
  const auto& groups = optimizer.param_groups();
  const auto options_of = [&](size_t group) {
    state::Dict options;
    options.add("lr", groups[group].options().get_lr());
    format.add_options(options, groups[group].options());
    return options;
  };
  const auto of_parameter = [&](size_t group, size_t index) {
    return format.state_of(optimizer, groups[group].params()[index], groups[group].options());
  };
  return make_state_dict(sizes_of(optimizer), of_parameter, options_of);
}

void load_state_of(torch::optim::Optimizer& optimizer, const state::View& view) {
  const auto& format = format_of(optimizer);
  auto& own = optimizer.param_groups();
  const torch::NoGradGuard no_grad;
  int64_t number = 0;
  load_state_dict(view, sizes_of(optimizer), [&](size_t group, size_t index, const auto& stored) {
    if (!stored && format.has_state_from_the_start) {
      view.at("state").fail(
          fmt::format("has no entry for parameter {}, but this optimizer has one for each; use the state of such an optimizer", number));
    }
    format.load(optimizer, own[group].params()[index], own[group].options(), stored);
    ++number;
  });
  const auto groups = view.at("param_groups").elements();
  for (size_t i = 0; i < own.size(); ++i) own[i].options().set_lr(groups[i].at("lr").number());
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
    format_ = &format_of(*optimizers_.front());
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

  const OptimizerOptions& options_of(size_t group) const { return optimizers_[group]->param_groups().front().options(); }
  state::Dict param_state(size_t group, size_t index) const override {
    return format_->state_of(*optimizers_[group], groups_[group].params[index], options_of(group));
  }
  void load_param_state(size_t group, size_t index, const std::optional<state::View>& view) override {
    if (!view && format_->has_state_from_the_start) return;
    format_->load(*optimizers_[group], groups_[group].params[index], options_of(group), view);
  }
  void add_options(size_t group, state::Dict& options) const override { format_->add_options(options, options_of(group)); }

  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
  const Format* format_ = nullptr;
  double base_lr_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> of_libtorch(std::vector<ParamGroup> groups,
                                       std::function<std::unique_ptr<torch::optim::Optimizer>(const ParamGroup& group)> make) {
  return std::make_unique<LibtorchOptimizer>(std::move(groups), make);
}

}  // namespace trainer::optim
