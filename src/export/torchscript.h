#pragma once
// Converts networks to TorchScript.

#include <torch/script.h>

#include <string>
#include <vector>

#include "export/interface.h"
#include "trainer/model.h"

namespace trainer::exported {

inline constexpr const char* kTorchscriptDescription = "trainer.json";

// Traces the model's forward(x) in eval mode on the CPU, for a batch of samples of this shape, as the method `method`. Parameters keep
// their names. Leaves the model in eval mode.
torch::jit::Module trace_network(models::Model& model, const std::vector<int64_t>& sample_shape, const char* method = "forward");

// Returns a TorchScript file of trace_network(), for batches of any size. If the interface has preprocessing, the file's
// forward(image) accepts uint8 images [batch, height, width, channels], and its logits_of(x) is the network without preprocessing.
// forward() returns the outputs of the interface, logits before answers. `description`: the content of the extra file
// kTorchscriptDescription. Reads the file back and compares the outputs of the network for two batch sizes; throws Error if they differ.
// Leaves the model in eval mode.
std::string to_torchscript(models::Model& model, const std::vector<int64_t>& sample_shape, const std::string& description,
                           const Interface& interface);

}  // namespace trainer::exported
