#pragma once

#include <torch/torch.h>

#include "state/tree.h"

namespace trainer::state {

// Parameters and buffers by their names, in the order of Python's Module.state_dict(): each layer's parameters, its buffers, its children.
// Shares their memory.
Dict state_of(const torch::nn::Module& module);

}  // namespace trainer::state
