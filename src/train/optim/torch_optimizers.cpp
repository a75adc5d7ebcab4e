// The state of LibTorch's own optimizers: trainer/optim.h.

#include <fmt/format.h>
#include <torch/torch.h>

#include "base/text.h"
#include "trainer/error.h"
#include "trainer/optim.h"

namespace trainer::optim {
namespace {

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

// How one class of optimizers keeps its state and options.
class Format {
 public:
  virtual ~Format() = default;
  virtual state::Dict state(const OptimizerParamState& state) const = 0;
  virtual std::unique_ptr<OptimizerParamState> read(const state::View& view, const torch::Tensor& parameter,
                                                    const OptimizerOptions& options) const = 0;
  virtual void add_options(const OptimizerOptions& options, state::Dict& dict) const = 0;
};

// Options that Python's optimizers have and LibTorch's do not, with their defaults.
void add_common_options(state::Dict& dict) {
  dict.add("maximize", false);
  dict.add("foreach", state::Tree());
  dict.add("differentiable", false);
  dict.add("fused", state::Tree());
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

// Of Adam and AdamW.
template <class ParamState, class Options, bool kDecoupled>
class AdamFormat : public Format {
 public:
  state::Dict state(const OptimizerParamState& state) const override {
    const auto& adam = dynamic_cast<const ParamState&>(state);
    state::Dict dict;
    dict.add("step", torch::tensor(static_cast<float>(adam.step())));
    dict.add("exp_avg", adam.exp_avg());
    dict.add("exp_avg_sq", adam.exp_avg_sq());
    if (adam.max_exp_avg_sq().defined()) dict.add("max_exp_avg_sq", adam.max_exp_avg_sq());
    return dict;
  }
  std::unique_ptr<OptimizerParamState> read(const state::View& view, const torch::Tensor& parameter,
                                            const OptimizerOptions& options) const override {
    auto state = std::make_unique<ParamState>();
    const auto step = view.at("step");
    if (step.tensor().numel() != 1) step.fail("is not one number");
    state->step(static_cast<int64_t>(step.tensor().template item<double>()));
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

std::unique_ptr<Format> format_of(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (dynamic_cast<const SGD*>(&optimizer) != nullptr) return std::make_unique<SgdFormat>();
  if (dynamic_cast<const Adam*>(&optimizer) != nullptr) return std::make_unique<AdamFormat<AdamParamState, AdamOptions, false>>();
  if (dynamic_cast<const AdamW*>(&optimizer) != nullptr) return std::make_unique<AdamFormat<AdamWParamState, AdamWOptions, true>>();
  throw UsageError("the state of this optimizer cannot be written in PyTorch's form; it can for torch::optim::SGD, Adam and AdamW");
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
  const auto groups = view.at("param_groups").elements();
  auto& own = optimizer.param_groups();
  if (groups.size() != own.size()) {
    view.at("param_groups")
        .fail(fmt::format("has {} instead of {}", counted(groups.size(), "group of parameters", "groups of parameters"), own.size()));
  }
  const torch::NoGradGuard no_grad;
  int64_t number = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const auto params = groups[i].at("params");
    const auto& parameters = own[i].params();
    if (params.elements().size() != parameters.size()) {
      params.fail(fmt::format("has {} instead of {}", counted(params.elements().size(), "parameter"), parameters.size()));
    }
    own[i].options().set_lr(groups[i].at("lr").number());
    for (const auto& parameter : parameters) {
      const auto stored = states.find(number++);
      auto state = stored ? format->read(*stored, parameter, own[i].options()) : nullptr;
      optimizer.state().erase(parameter.unsafeGetTensorImpl());
      if (state) optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
    }
  }
}

}  // namespace trainer::optim
