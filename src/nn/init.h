#pragma once
// Weight initialisation from a generator that the caller provides; the process-wide generator is never used. Formulas of
// torch.nn.init and of the layers' own reset_parameters.

#include <torch/torch.h>

#include "nn/layers.h"

namespace trainer::nn {

// Normal with std sqrt(2 / fan_out), as in torchvision's ResNet and VGG convolutions.
void kaiming_normal_fan_out_(torch::Tensor weight, at::Generator generator);
// Fills weight and bias (if defined) uniformly in ±1/sqrt(fan_in), the default of nn.Conv2d and nn.Linear.
void default_uniform_(torch::Tensor weight, torch::Tensor bias, at::Generator generator);
void normal_(torch::Tensor tensor, double mean, double std, at::Generator generator);

// Applies kaiming_normal_fan_out_ to the weight of every Conv2d below `network`, in the order of its modules; a bias becomes 0.
void init_convolutions_(const torch::nn::Module& network, const at::Generator& generator);

}  // namespace trainer::nn
