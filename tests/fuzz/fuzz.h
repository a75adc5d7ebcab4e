#pragma once
// What every fuzzer of a reader asserts: a CheckpointError or a tree, whose tensors lie in memory that is theirs, and no more memory on
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
