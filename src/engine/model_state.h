#pragma once
// A network's parameters and buffers by the names and in the order of PyTorch's state_dict.

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "state/view.h"

namespace trainer::engine {

// The tensors themselves, not copies.
std::vector<std::pair<std::string, torch::Tensor>> named_state(const torch::nn::Module& model);
state::Dict model_state(const torch::nn::Module& model);
// Throws CheckpointError when a name is missing or too many, or a tensor does not fit; the model may then have been written in part.
void load_model_state(torch::nn::Module& model, const state::View& view);

}  // namespace trainer::engine
