#pragma once
// A loop of input/image_write.h, for the processor's vectors.

#include <cstddef>
#include <cstdint>

#include "input/image_write.h"

namespace trainer::input {

// 1 / x as the sum of two floats.
struct Reciprocal {
  constexpr explicit Reciprocal(double x)
      : rounded(static_cast<float>(1 / x)), rest(static_cast<float>(1 / x - static_cast<double>(rounded))) {}
  float rounded;
  float rest;
};
inline constexpr Reciprocal kPixelScale(255);

// Normalises `count` pixels of three interleaved channels, from the last to the first if `mirrored`. `arithmetic` has three entries. Writes
// channel c from out + c * plane on, or with `plane` 0 the channels of each pixel together. Returns false, without a result, if the
// processor has no fused multiply-add.
bool normalise_pixels_of_three(const uint8_t* pixels, int count, bool mirrored, const ChannelArithmetic* arithmetic, ptrdiff_t plane,
                               float* out);

}  // namespace trainer::input
