#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace trainer::engine {

// Returns a TorchScript file of the model's forward(x) in eval mode, traced on the CPU, for batches of any size with samples of this shape.
// Reads the file back and compares the outputs for two batch sizes; throws Error if they differ. Leaves the model in eval mode.
std::string to_torchscript(models::Model& model, const std::vector<int64_t>& sample_shape);

}  // namespace trainer::engine
