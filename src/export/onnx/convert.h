#pragma once
// Converts traced networks to ONNX.

#include <torch/script.h>

#include <vector>

#include "export/interface.h"
#include "export/onnx/model.h"

namespace trainer::onnx {

// Converts a traced module (exported::trace_network) whose forward accepts a batch of samples of this shape. Without preprocessing, the
// input is `images`, [batch, ...] of the sample shape. With preprocessing, the input is `image`, uint8 [batch, height, width, channels],
// and `images` is the result of the preprocessing. The outputs are `logits`, the answers (exported::name_of_answers()), or both. Parameters
// become constants with their names in the state_dict. Throws UsageError with a list of the operators that cannot be converted.
Model convert(const torch::jit::Module& traced, const std::vector<int64_t>& sample_shape, const exported::Interface& interface);

}  // namespace trainer::onnx
