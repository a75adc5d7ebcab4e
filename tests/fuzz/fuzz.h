#pragma once
// Every fuzzer asserts that a reader throws a CheckpointError or returns a tree whose tensors lie in valid memory, and that it allocates no
// more memory than refusal.h allows.

#include <cstdint>
#include <functional>
#include <span>

#include "trainer/state.h"

namespace trainer::fuzz {

using Reader = std::function<state::Tree(std::span<const uint8_t>)>;

// Aborts if the reader violates these assertions.
void check(std::span<const uint8_t> file, const Reader& read);

}  // namespace trainer::fuzz
