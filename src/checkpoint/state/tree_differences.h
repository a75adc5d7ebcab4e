#pragma once

#include <string>
#include <vector>

#include "trainer/state.h"

namespace trainer::state {

// Lists the differences between two trees, in the order of the first: "model.fc.weight: 17 of 5120 values, by up to 3.1e-05", "step: 10,
// not 12", "ema: only in the first". For texts with several lines, the first line that differs is shown. Tensors are equal if their values
// are bitwise equal, whatever their strides.
std::vector<std::string> differences(const Tree& first, const Tree& second);

}  // namespace trainer::state
