#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace trainer::engine {

// A TorchScript file of `model` as it evaluates, which it then is set to: its forward(x), traced on the CPU, for batches of any size of
// samples of this shape. Reads it back and compares the outputs for two batch sizes; throws Error where they differ.
std::string to_torchscript(models::Model& model, const std::vector<int64_t>& sample_shape);

}  // namespace trainer::engine
