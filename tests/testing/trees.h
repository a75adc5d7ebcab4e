#pragma once
// Trees to write, and what is in them as text.

#include <torch/types.h>

#include <string>

#include "state/tree.h"

namespace trainer::testing {

// Everything that a tree can hold, every dtype, and tensors that share memory or skip parts of it.
state::Tree make_tree();

// Two trees are equal, bit for bit, where this is. One line a value: its path, what it is, and for a tensor its shape, strides, dtype
// and values.
std::string describe(const state::Tree& tree);

}  // namespace trainer::testing
