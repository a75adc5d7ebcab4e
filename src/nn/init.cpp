#include <cmath>
#include <utility>

#include "trainer/nn.h"

namespace trainer::nn {

void kaiming_normal_fan_out_(torch::Tensor weight, at::Generator generator) {
  const int64_t fan_out = weight.numel() / weight.size(1);
  normal_(std::move(weight), 0.0, std::sqrt(2.0 / static_cast<double>(fan_out)), std::move(generator));
}

void default_uniform_(torch::Tensor weight, torch::Tensor bias, at::Generator generator) {
  const torch::NoGradGuard no_grad;
  const int64_t fan_in = weight.numel() / weight.size(0);
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  weight.uniform_(-bound, bound, generator);
  if (bias.defined()) bias.uniform_(-bound, bound, generator);
}

void normal_(torch::Tensor tensor, double mean, double std, at::Generator generator) {
  const torch::NoGradGuard no_grad;
  tensor.normal_(mean, std, std::move(generator));
}

void init_convolutions_(const torch::nn::Module& network, const at::Generator& generator) {
  const torch::NoGradGuard no_grad;
  for (const auto& module : network.modules(/*include_self=*/false)) {
    auto* convolution = module->as<Conv2d>();
    if (convolution == nullptr) continue;
    kaiming_normal_fan_out_(convolution->weight, generator);
    if (convolution->bias.defined()) convolution->bias.zero_();
  }
}

}  // namespace trainer::nn
