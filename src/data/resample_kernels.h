#pragma once
// The two inner loops of data/resample.h, vectorised. A weight has kFractionBits fractional bits; a result is (the weighted sum + half) >>
// kFractionBits, limited to 0 to 255.

#include <cstddef>
#include <cstdint>

namespace trainer::data {

// Of 32 bits, 8 are reserved for the pixel, and 2 for sums that exceed the range of a pixel.
inline constexpr int kFractionBits = 32 - 8 - 2;

// Computes `num_outputs` pixels for each of `num_rows` rows of pixels with three interleaved channels. Input rows are `stride` bytes apart.
// Output i of a row is computed from its pixels begins[i] to begins[i] + count - 1, with the weights from weights[i * count] on. The byte
// after the last pixel is read but not used.
void weigh_pixels_of_three(const uint8_t* rows, ptrdiff_t stride, int num_rows, const int32_t* begins, const int32_t* weights, int count,
                           int num_outputs, uint8_t* out);

// Computes one output row, the weighted sum of `count` rows, which are `stride` bytes apart.
void weigh_rows(const uint8_t* rows, ptrdiff_t stride, const int32_t* weights, int count, ptrdiff_t num_bytes, uint8_t* out);

}  // namespace trainer::data
