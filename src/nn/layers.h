#pragma once
// Layers with learned weights (trainer/nn.h) of a network as a whole.

#include "nn/convolution/winograd.h"
#include "trainer/nn.h"

namespace trainer::nn {

// Calls Conv2d::use_winograd of every convolution below `network`.
void use_winograd(const torch::nn::Module& network, convolution::Tile largest_tile);

}  // namespace trainer::nn
