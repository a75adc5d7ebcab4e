#pragma once

#include <torch/script.h>

#include <string>
#include <vector>

#include "export/onnx/model.h"

namespace trainer::onnx {

// The network of a traced module (engine::trace_network) whose forward takes a batch of samples of this shape and returns [batch, outputs].
// Parameters become float32 constants with their names in the state_dict. Throws UsageError that names the operators for which there is no
// conversion.
Model convert(const torch::jit::Module& traced, const std::vector<int64_t>& sample_shape);

}  // namespace trainer::onnx
