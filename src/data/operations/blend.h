#pragma once

#include <algorithm>
#include <cstdint>

namespace trainer::data {

// Clipped and cut off, in a form that compilers vectorise.
inline uint8_t to_byte(float value) { return static_cast<uint8_t>(static_cast<int>(std::min(std::max(value, 0.0F), 255.0F))); }

// From `from` (factor 0) to `to` (factor 1) and beyond: ImagingBlend of Pillow (src/libImaging/Blend.c), which does not round but cut off.
inline uint8_t blend(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return to_byte(value);
}

}  // namespace trainer::data
