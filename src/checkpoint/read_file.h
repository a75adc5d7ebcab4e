#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trainer/state.h"

namespace trainer::checkpoint {

// Reads from memory what load() reads from a file (trainer/checkpoint.h); `source` states in messages where the bytes came from.
state::Tree load(std::span<const uint8_t> bytes, const std::string& source);

}  // namespace trainer::checkpoint
