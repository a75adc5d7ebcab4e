#include "data/batch_transforms/batch_transform.h"

#include <torch/torch.h>

namespace trainer::data {

torch::Tensor previous_samples(const torch::Tensor& x) {
  auto previous = at::empty_like(x);
  previous.slice(0, 0, 1).copy_(x.slice(0, -1));
  previous.slice(0, 1).copy_(x.slice(0, 0, -1));
  return previous;
}

torch::Tensor mix_with_previous(const torch::Tensor& x, double weight) { return previous_samples(x).mul_(1 - weight).add_(x.mul(weight)); }

double draw_beta(double alpha, at::Generator& generator) {
  return at::_sample_dirichlet(torch::full({2}, alpha, torch::kFloat32), generator)[0].item<double>();
}

}  // namespace trainer::data
