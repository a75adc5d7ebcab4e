#include <torch/torch.h>

#include "optim/optimizer.h"

namespace trainer::optim {

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
