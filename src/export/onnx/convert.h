#pragma once

#include <torch/script.h>

#include <string>
#include <vector>

#include "export/interface.h"
#include "export/onnx/model.h"

namespace trainer::onnx {

// The network of a traced module (engine::trace_network) whose forward takes a batch of samples of this shape.
// Without images as its input, its input is `images`, [batch, ...] of the sample shape; with them it is `image`, uint8 [batch, height,
// width, channels], and `images` is what the network gets from its preprocessing. Outputs: `logits` and `probabilities`. Parameters become
// constants with their names in the state_dict. Throws UsageError that names the operators for which there is no conversion.
Model convert(const torch::jit::Module& traced, const std::vector<int64_t>& sample_shape, const exported::Interface& interface);

}  // namespace trainer::onnx
