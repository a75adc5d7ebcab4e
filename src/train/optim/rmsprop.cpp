// torch.optim.RMSprop. LibTorch has no fused kernel for this optimizer, so an update uses operations over lists of tensors, as Python does
// with foreach=True.

#include "train/optim/optimizer.h"
#include "trainer/torch.h"

namespace trainer::optim {
namespace {

struct RmspropOptions {
  double lr = 0.01;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;

  void describe(KeyTable& keys) {
    keys.add("lr", lr, {.min = 0, .doc = "Learning rate, which the schedule scales."});
    keys.add("alpha", alpha,
             {.min = 0, .max = 1, .max_excluded = true, .doc = "Decay factor of the running mean of the squared gradient."});
    keys.add("eps", eps, {.min = 0, .min_excluded = true, .doc = "Added to the denominator."});
    keys.add("weight_decay", weight_decay, {.min = 0, .doc = "L2 penalty: this fraction of the parameter is added to its gradient."});
    keys.add("momentum", momentum, {.min = 0, .max = 1, .max_excluded = true, .doc = "Fraction of the last update that is kept."});
    keys.add("centered", centered, {.doc = "Use the running variance of the gradient instead of the running mean of its square."});
  }
};

// The state of one parameter; undefined before its first gradient.
struct RmspropState {
  torch::Tensor step;  // float32 scalar on the parameter's device; for Python's RMSprop, not used here
  torch::Tensor square_avg;
  torch::Tensor momentum_buffer;  // undefined without momentum
  torch::Tensor grad_avg;         // undefined unless centered
};

using Tensors = std::vector<torch::Tensor>;

class Rmsprop final : public Optimizer {
 public:
  Rmsprop(const RmspropOptions& options, std::vector<ParamGroup> groups) : Optimizer(std::move(groups)), options_(options) {
    for (const auto& group : groups_) states_.emplace_back(group.params.size());
  }

  double base_lr() const override { return options_.lr; }

 private:
  // The tensors that one update changes.
  struct Lists {
    Tensors params, square_avgs, momentum_buffers, grad_avgs, steps;

    Tensors all() const {
      Tensors tensors;
      for (const auto* list : {&params, &square_avgs, &momentum_buffers, &grad_avgs, &steps}) {
        tensors.insert(tensors.end(), list->begin(), list->end());
      }
      return tensors;
    }
  };

  void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) override {
    Lists lists;
    for (size_t i = 0; i < gradients.indices.size(); ++i) {
      auto& state = states_[group][gradients.indices[i]];
      if (!state.step.defined()) state = first_state(gradients.params[i]);
      lists.params.push_back(gradients.params[i]);
      lists.square_avgs.push_back(state.square_avg);
      if (state.momentum_buffer.defined()) lists.momentum_buffers.push_back(state.momentum_buffer);
      if (state.grad_avg.defined()) lists.grad_avgs.push_back(state.grad_avg);
      lists.steps.push_back(state.step);
    }
    change_unless(found_inf, lists.all(), [&] { change(lists, gradients.grads, lr, weight_decay_of(group, options_.weight_decay)); });
  }

  void change(const Lists& lists, const Tensors& gradients, double lr, double weight_decay) const {
    const auto grads = weight_decay != 0 ? at::_foreach_add(gradients, lists.params, weight_decay) : gradients;
    at::_foreach_add_(lists.steps, 1);
    at::_foreach_mul_(lists.square_avgs, options_.alpha);
    at::_foreach_addcmul_(lists.square_avgs, grads, grads, 1 - options_.alpha);
    const auto denominators = denominators_of(lists, grads);
    if (lists.momentum_buffers.empty()) {
      at::_foreach_addcdiv_(lists.params, grads, denominators, -lr);
      return;
    }
    at::_foreach_mul_(lists.momentum_buffers, options_.momentum);
    at::_foreach_addcdiv_(lists.momentum_buffers, grads, denominators, 1);
    at::_foreach_add_(lists.params, lists.momentum_buffers, -lr);
  }

  Tensors denominators_of(const Lists& lists, const Tensors& grads) const {
    Tensors roots;
    if (options_.centered) {
      at::_foreach_lerp_(lists.grad_avgs, grads, 1 - options_.alpha);
      roots = at::_foreach_addcmul(lists.square_avgs, lists.grad_avgs, lists.grad_avgs, -1);
      at::_foreach_sqrt_(roots);
    } else {
      roots = at::_foreach_sqrt(lists.square_avgs);
    }
    at::_foreach_add_(roots, options_.eps);
    return roots;
  }

  RmspropState first_state(const torch::Tensor& param) const {
    return {.step = torch::zeros({}, param.options().dtype(torch::kFloat32)),
            .square_avg = torch::zeros_like(param),
            .momentum_buffer = options_.momentum > 0 ? torch::zeros_like(param) : torch::Tensor(),
            .grad_avg = options_.centered ? torch::zeros_like(param) : torch::Tensor()};
  }

  state::Dict param_state(size_t group, size_t index) const override {
    state::Dict state;
    const auto& [step, square_avg, momentum_buffer, grad_avg] = states_[group][index];
    if (!step.defined()) return state;
    state.add("step", step);
    state.add("square_avg", square_avg);
    if (momentum_buffer.defined()) state.add("momentum_buffer", momentum_buffer);
    if (grad_avg.defined()) state.add("grad_avg", grad_avg);
    return state;
  }

  void load_param_state(size_t group, size_t index, const std::optional<state::View>& view) override {
    auto& state = states_[group][index];
    state = view ? first_state(groups_[group].params[index]) : RmspropState{};
    if (!view) return;
    view->at("step").copy_to(state.step);
    view->at("square_avg").copy_to(state.square_avg);
    if (state.momentum_buffer.defined()) view->at("momentum_buffer").copy_to(state.momentum_buffer);
    if (state.grad_avg.defined()) view->at("grad_avg").copy_to(state.grad_avg);
  }

  void add_options(size_t group, state::Dict& options) const override {
    options.add("momentum", options_.momentum);
    options.add("alpha", options_.alpha);
    options.add("eps", options_.eps);
    options.add("centered", options_.centered);
    options.add("weight_decay", weight_decay_of(group, options_.weight_decay));
    options.add("capturable", false);
    options.add("foreach", state::Tree());
    options.add("maximize", false);
    options.add("differentiable", false);
  }

  RmspropOptions options_;
  std::vector<std::vector<RmspropState>> states_;  // indexed like groups_
};

}  // namespace

void add_rmsprop(OptimizerRegistry& registry) {
  registry.add<RmspropOptions>("rmsprop", "RMSprop (Hinton 2012): the gradient divided by the root of the running mean of its square.",
                               [](const auto& options, auto groups) { return std::make_unique<Rmsprop>(options, std::move(groups)); });
}

}  // namespace trainer::optim
