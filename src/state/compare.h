#pragma once

#include <string>
#include <vector>

#include "state/tree.h"

namespace trainer::state {

// The differences between two trees, in the order of the first: "model.fc.weight: 17 of 5120 values, by up to 3.1e-05", "step: 10, not 12",
// "ema: only in the first". Tensors are equal if all their bits are equal, whatever their strides.
std::vector<std::string> differences(const Tree& first, const Tree& second);

}  // namespace trainer::state
