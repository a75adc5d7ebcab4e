#pragma once
// Weights from a file.

#include <torch/torch.h>

#include <string>

#include "config/sections/model.h"
#include "state/tree.h"

namespace trainer::engine {

// Fills parameters and buffers by their names from a state_dict, bare or as "model" or "state_dict" of a dictionary, with or without
// DistributedDataParallel's prefix "module."; in the model's dtype. A num_batches_tracked may be missing, as in files from before PyTorch
// 0.4.1. What else is missing, unexpected or of another shape is one CheckpointError that names it all, before anything is changed.
// `source`: where `file` came from, for messages.
void load_weights(const state::Tree& file, const std::string& source, torch::nn::Module& model);

// The same for weights to begin with. Where not `strict`, what fits is taken; a file of which nothing fits is an error even then.
// Returns what is to be said of it.
std::string init_model(const state::Tree& file, const std::string& source, bool strict, torch::nn::Module& model);
// From the file that model.init_from names.
std::string init_model(const config::ModelSection& section, torch::nn::Module& model);

}  // namespace trainer::engine
