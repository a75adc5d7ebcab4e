#pragma once

#include <array>
#include <cstdint>

#include "trainer/transform.h"

namespace trainer::data {

// What becomes of each pixel value.
using ByteTable = std::array<uint8_t, 256>;

inline void apply_table(const PixelArray& pixels, const ByteTable& table) {
  for (size_t i = 0; i < pixels.num_bytes(); ++i) pixels.data[i] = table[pixels.data[i]];
}

}  // namespace trainer::data
