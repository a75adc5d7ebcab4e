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

torch::Tensor Optimizer::aligned_grad(const torch::Tensor& param) {
  const auto& grad = param.grad();
  if (!grad.defined() || same_layout(grad, param)) return grad;
  return torch::empty_like(param).copy_(grad);
}

config::Family optimizer_family() { return {sgd_kind(), adam_kind(), adamw_kind()}; }

std::unique_ptr<Optimizer> make_optimizer(const config::Part& part, std::vector<ParamGroup> groups) {
  return dynamic_cast<const OptimizerOptions&>(*part.options).make(std::move(groups));
}

}  // namespace trainer::optim
