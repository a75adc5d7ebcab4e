#include "optim/optimizer.h"

#include "optim/kinds.h"

namespace trainer::optim {
namespace {

// Strides of dimensions of size 1 say nothing about the layout, and autograd leaves them as they come.
bool same_layout(const torch::Tensor& a, const torch::Tensor& b) {
  for (int64_t i = 0; i < b.dim(); ++i) {
    if (b.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

// The parameter's gradient in the parameter's memory layout; undefined without one.
torch::Tensor aligned_grad(const torch::Tensor& param) {
  const auto& grad = param.grad();
  if (!grad.defined() || same_layout(grad, param)) return grad;
  return torch::empty_like(param).copy_(grad);
}

// Which of `tensors` (one at least) have an element that is not zero, NaN included. Waits for the device once.
std::vector<bool> have_nonzero(const std::vector<torch::Tensor>& tensors) {
  // The 1-norm: the squares of the 2-norm can vanish, and the maximum of an empty tensor is an error.
  const auto flags = at::stack(at::_foreach_norm(tensors, 1)).ne(0).cpu();
  const auto* begin = flags.const_data_ptr<bool>();
  return std::vector<bool>(begin, begin + flags.numel());
}

}  // namespace

std::vector<ParamGroup> group_parameters(const torch::nn::Module& model, bool decay_norm_and_bias) {
  ParamGroup with_decay{.params = {}, .decay = true};
  ParamGroup without_decay{.params = {}, .decay = false};
  for (const auto& param : model.parameters()) {
    auto& group = decay_norm_and_bias || param.dim() >= 2 ? with_decay : without_decay;
    group.params.push_back(param);
  }
  std::vector<ParamGroup> groups;
  for (auto* group : {&with_decay, &without_decay}) {
    if (!group->params.empty()) groups.push_back(std::move(*group));
  }
  return groups;
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
  descend();
  auto all = gather();
  if (skip_zero_grads_) drop_zeros(all);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].params.empty()) update(i, all[i], lr, found_inf);
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

void Optimizer::ascend() { TORCH_CHECK(false, "Optimizer::ascend: this optimizer takes one pass a step"); }

config::Family optimizer_family() { return {sgd_kind(), adam_kind(), adamw_kind(), sam_kind()}; }

std::unique_ptr<Optimizer> make_optimizer(const config::Part& part, std::vector<ParamGroup> groups, bool skip_zero_grads) {
  auto optimizer = dynamic_cast<const OptimizerOptions&>(*part.options).make(std::move(groups));
  optimizer->set_skip_zero_grads(skip_zero_grads);
  return optimizer;
}

}  // namespace trainer::optim
