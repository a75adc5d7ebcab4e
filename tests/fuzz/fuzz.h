#pragma once
// Asserted by every fuzzer of a reader: a CheckpointError or a tree whose tensors own their memory, and no more memory on
// the way than refusal.h says.

#include <cstdint>
#include <functional>
#include <span>

#include "trainer/state.h"

namespace trainer::fuzz {

using Reader = std::function<state::Tree(std::span<const uint8_t>)>;

// Aborts where that is not so.
void check(std::span<const uint8_t> file, const Reader& read);

}  // namespace trainer::fuzz
