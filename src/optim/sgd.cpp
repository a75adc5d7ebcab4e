#include <fmt/format.h>

#include "base/error.h"
#include "optim/kinds.h"
#include "optim/optimizer.h"

namespace trainer::optim {
namespace {

struct SgdOptions : OptimizerOptions {
  double lr = 0.1;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;

  void describe(config::KeyTable& keys) override {
    keys.add("lr", lr, {.min = 0, .doc = "Learning rate, which the schedule scales."});
    keys.add("momentum", momentum, {.min = 0, .max = 1, .max_excluded = true, .doc = "Part of the last update's direction that is kept."});
    keys.add("dampening", dampening, {.min = 0, .max = 1, .doc = "Part of the gradient that is kept out of the momentum buffer."});
    keys.add("weight_decay", weight_decay, {.min = 0, .doc = "Times the parameter, added to its gradient."});
    keys.add("nesterov", nesterov, {.doc = "Nesterov's momentum; needs momentum above 0 and dampening 0."});
  }
  std::unique_ptr<Optimizer> make(std::vector<ParamGroup> groups) const override;
};

// The lists of one kernel call.
struct SgdLists {
  std::vector<torch::Tensor> params;
  std::vector<torch::Tensor> grads;
  std::vector<torch::Tensor> momentum_buffers;  // empty without momentum
};

class Sgd final : public Optimizer {
 public:
  Sgd(const SgdOptions& options, std::vector<ParamGroup> groups) : Optimizer(std::move(groups)), options_(options) {
    for (const auto& group : groups_) momentum_buffers_.emplace_back(group.params.size());
  }

  void step(double lr) override {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < groups_.size(); ++i) step_group(groups_[i], momentum_buffers_[i], lr);
  }

  double base_lr() const override { return options_.lr; }

 private:
  void step_group(const ParamGroup& group, std::vector<torch::Tensor>& momentum_buffers, double lr) const {
    SgdLists first;  // their momentum buffers start as this gradient, undampened
    SgdLists later;
    for (size_t i = 0; i < group.params.size(); ++i) {
      const auto& param = group.params[i];
      const auto grad = aligned_grad(param);
      if (!grad.defined()) continue;
      auto& buffer = momentum_buffers[i];
      const bool is_first = options_.momentum != 0 && !buffer.defined();
      if (is_first) buffer = torch::empty_like(param);
      auto& lists = is_first ? first : later;
      lists.params.push_back(param);
      lists.grads.push_back(grad);
      if (options_.momentum != 0) lists.momentum_buffers.push_back(buffer);
    }
    const double weight_decay = group.decay ? options_.weight_decay : 0;
    update(first, lr, weight_decay, /*is_first_step=*/true);
    update(later, lr, weight_decay, /*is_first_step=*/false);
  }

  void update(const SgdLists& lists, double lr, double weight_decay, bool is_first_step) const {
    if (lists.params.empty()) return;
    at::_fused_sgd_(lists.params, lists.grads, lists.momentum_buffers, weight_decay, options_.momentum, lr, options_.dampening,
                    options_.nesterov, /*maximize=*/false, is_first_step);
  }

  SgdOptions options_;
  std::vector<std::vector<torch::Tensor>> momentum_buffers_;  // like groups_; undefined before the parameter's first gradient
};

std::unique_ptr<Optimizer> SgdOptions::make(std::vector<ParamGroup> groups) const {
  if (nesterov && (momentum == 0 || dampening != 0)) {
    throw UsageError(
        fmt::format("optimizer.nesterov: true needs momentum above 0 and dampening 0, but momentum is {} and dampening {}; "
                    "change those or set nesterov to false",
                    momentum, dampening));
  }
  return std::make_unique<Sgd>(*this, std::move(groups));
}

}  // namespace

config::PartKind sgd_kind() {
  return {"sgd", "Stochastic gradient descent, with momentum if asked for.", [] { return std::make_unique<SgdOptions>(); }};
}

}  // namespace trainer::optim
