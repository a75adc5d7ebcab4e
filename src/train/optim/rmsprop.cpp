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

class Rmsprop final : public Optimizer {
 public:
  Rmsprop(const RmspropOptions& options, std::vector<ParamGroup> groups)
      : Optimizer(std::move(groups), {"step", "square_avg", "momentum_buffer", "grad_avg"}), options_(options) {}

  double base_lr() const override { return options_.lr; }

 private:
  std::vector<torch::Tensor> first_state(const torch::Tensor& param) const override {
    return {torch::zeros({}, param.options().dtype(torch::kFloat32)), torch::zeros_like(param),
            options_.momentum > 0 ? torch::zeros_like(param) : torch::Tensor(),
            options_.centered ? torch::zeros_like(param) : torch::Tensor()};
  }

  void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) override {
    change_unless(found_inf, gradients.changed(), [&] { change(gradients, lr, weight_decay_of(group, options_.weight_decay)); });
  }

  void change(const Gradients& gradients, double lr, double weight_decay) const {
    const auto& params = gradients.params;
    // The number of steps is for Python's RMSprop and not used here.
    const auto &steps = gradients.states[0], &square_avgs = gradients.states[1];
    const auto &momentum_buffers = gradients.states[2], &grad_avgs = gradients.states[3];
    const auto grads = weight_decay != 0 ? at::_foreach_add(gradients.grads, params, weight_decay) : gradients.grads;
    at::_foreach_add_(steps, 1);
    at::_foreach_mul_(square_avgs, options_.alpha);
    at::_foreach_addcmul_(square_avgs, grads, grads, 1 - options_.alpha);
    if (options_.centered) at::_foreach_lerp_(grad_avgs, grads, 1 - options_.alpha);
    const auto denominators =
        options_.centered ? at::_foreach_addcmul(square_avgs, grad_avgs, grad_avgs, -1) : at::_foreach_sqrt(square_avgs);
    if (options_.centered) at::_foreach_sqrt_(denominators);
    at::_foreach_add_(denominators, options_.eps);
    if (options_.momentum == 0) {
      at::_foreach_addcdiv_(params, grads, denominators, -lr);
      return;
    }
    at::_foreach_mul_(momentum_buffers, options_.momentum);
    at::_foreach_addcdiv_(momentum_buffers, grads, denominators, 1);
    at::_foreach_add_(params, momentum_buffers, -lr);
  }

  void add_options(size_t group, state::Dict& options) const override {
    add_rmsprop_options(options, options_.momentum, options_.alpha, options_.eps, options_.centered,
                        weight_decay_of(group, options_.weight_decay));
  }

  RmspropOptions options_;
};

}  // namespace

void add_rmsprop(OptimizerRegistry& registry) {
  registry.add<RmspropOptions>("rmsprop", "RMSprop (Hinton 2012): the gradient divided by the root of the running mean of its square.",
                               [](const auto& options, auto groups) { return std::make_unique<Rmsprop>(options, std::move(groups)); });
}

}  // namespace trainer::optim
