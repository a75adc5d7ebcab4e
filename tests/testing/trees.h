#pragma once
// Trees for tests of writers, and their content as text.

#include <torch/types.h>

#include <string>

#include "trainer/state.h"

namespace trainer::testing {

// A tree with every kind of value, every dtype, and tensors that share memory or are strided.
state::Tree make_tree();

// Two trees are equal, bit for bit, if their descriptions are. One line per value: its path, its kind, and for a tensor its shape,
// strides, dtype and values.
std::string describe(const state::Tree& tree);

}  // namespace trainer::testing
