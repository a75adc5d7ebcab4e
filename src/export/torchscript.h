#pragma once

#include <torch/script.h>

#include <string>
#include <vector>

#include "export/interface.h"
#include "trainer/model.h"

namespace trainer::engine {

inline constexpr const char* kTorchscriptDescription = "trainer.json";

// The model's forward(x) in eval mode, traced on the CPU for a batch of samples of this shape, with the names of its parameters, as the
// method `method`. Leaves the model in eval mode.
torch::jit::Module trace_network(models::Model& model, const std::vector<int64_t>& sample_shape, const char* method = "forward");

// Returns a TorchScript file of trace_network(), for batches of any size; where the interface has preprocessing, its forward(image) takes
// uint8 images [batch, height, width, channels], and logits_of(x) is the network. forward returns what the interface names, logits before
// probabilities. `description`: the content of its extra file kTorchscriptDescription. Reads the file back and compares the outputs of the
// network for two batch sizes; throws Error if they differ. Leaves the model in eval mode.
std::string to_torchscript(models::Model& model, const std::vector<int64_t>& sample_shape, const std::string& description,
                           const exported::Interface& interface);

}  // namespace trainer::engine
