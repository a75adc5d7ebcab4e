#pragma once

#include <torch/torch.h>

#include <string>
#include <string_view>
#include <vector>

#include "state/view.h"

namespace trainer::state {

// Parameters and buffers by name, in the order of Python's Module.state_dict(): each module's parameters, its buffers, its children. The
// tensors share the module's memory.
Dict state_of(const torch::nn::Module& module);
// Copies the values into the module. Throws CheckpointError if a name is missing or unknown, or a shape or dtype differs; some tensors
// may then already have been loaded.
void load_state_of(torch::nn::Module& module, const View& view);

// Whether one of `names` is `entry`, the name of a parameter or module, or that of a module around it: "layer1" for
// "layer1.0.conv1.weight".
bool is_in(std::string_view entry, const std::vector<std::string>& names);

}  // namespace trainer::state
