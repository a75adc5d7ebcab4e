#pragma once

#include <torch/types.h>

#include <string>

namespace trainer::state {

// The dtype and shape, for messages: "Float[2, 3]".
std::string describe(const torch::Tensor& tensor);

}  // namespace trainer::state
