#pragma once
// The two loops of input/resample.h, for the processor's vectors. A weight has kFractionBits fractional bits; a result is
// (the weighted sum + half) >> kFractionBits, limited to 0 to 255.

#include <cstddef>
#include <cstdint>

namespace trainer::input {

// 8 bits are for the pixel, and 2 for sums that exceed the range of a pixel.
inline constexpr int kFractionBits = 32 - 8 - 2;

// One row of pixels of three interleaved channels. Output i is made of the pixels begins[i] to begins[i] + count - 1 of the row, with the
// weights from weights[i * count] on. The byte after the last pixel is read, but not used.
void weigh_pixels_of_three(const uint8_t* row, const int32_t* begins, const int32_t* weights, int count, int num_outputs, uint8_t* out);

// One output row of the weighted sum of `count` rows, which are `stride` bytes apart.
void weigh_rows(const uint8_t* rows, ptrdiff_t stride, const int32_t* weights, int count, ptrdiff_t num_bytes, uint8_t* out);

}  // namespace trainer::input
