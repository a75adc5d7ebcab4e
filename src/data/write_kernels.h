#pragma once
// The inner loop of data/image_write.h, vectorised.

#include <cstddef>
#include <cstdint>
#include <span>

#include "data/image_write.h"

namespace trainer::data {

// The number of bytes after the pixels that normalise() may read.
inline constexpr size_t kReadBehind = 64;

// Normalises `count` values, the pixels of one channel or, if `arithmetic` has three entries, of three interleaved channels, to float or to
// the bits of bfloat16. Returns false, without a result, if the processor has no fused multiply-add.
bool normalise(const uint8_t* pixels, ptrdiff_t count, std::span<const ChannelArithmetic> arithmetic, float* out);
bool normalise(const uint8_t* pixels, ptrdiff_t count, std::span<const ChannelArithmetic> arithmetic, uint16_t* out);

}  // namespace trainer::data
