#pragma once
// What transforms of batches have in common (torchvision/transforms/v2/_augment.py).

#include <torch/types.h>

namespace trainer::data {

// Equals x.roll(1, 0), in the memory format of `x`; on a GPU at::roll does not keep channels_last.
torch::Tensor previous_samples(const torch::Tensor& x);

// weight * x + (1 - weight) * previous_samples(x), rounded as by torchvision.
torch::Tensor mix_with_previous(const torch::Tensor& x, double weight);

// A sample of Beta(alpha, alpha): that of torch.distributions.Beta with the same generator, which must be on the CPU.
double draw_beta(double alpha, at::Generator& generator);

}  // namespace trainer::data
