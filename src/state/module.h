#pragma once

#include <torch/torch.h>

#include "state/view.h"

namespace trainer::state {

// Parameters and buffers by their names, in the order of Python's Module.state_dict(): each layer's parameters, its buffers, its children.
// Shares their memory.
Dict state_of(const torch::nn::Module& module);
// Throws CheckpointError when a name is missing or unknown or a tensor does not fit; a part may then have been loaded.
void load_state_of(torch::nn::Module& module, const View& view);

}  // namespace trainer::state
