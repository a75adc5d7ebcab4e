#pragma once
// Operations on the values of single pixels, in place. Each equals the function of torchvision.transforms.functional with its name, applied
// to a PIL image, bit for bit. Images have 1 or 3 channels; those of 1 channel are PIL's mode L.

#include <algorithm>
#include <array>
#include <cstdint>

#include "trainer/transform.h"

namespace trainer::data {

// All channels become the grey value.
void to_grayscale(const PixelArray& pixels);
void adjust_brightness(const PixelArray& pixels, float factor);
void adjust_contrast(const PixelArray& pixels, float factor);
// Grey images are left as they are, by adjust_hue too.
void adjust_saturation(const PixelArray& pixels, float factor);
// -0.5 <= shift <= 0.5, in turns around the circle of hues.
void adjust_hue(const PixelArray& pixels, double shift);

// Clipped and cut off, in a form that compilers vectorise.
inline uint8_t to_byte(float value) { return static_cast<uint8_t>(static_cast<int>(std::min(std::max(value, 0.0F), 255.0F))); }

// From `from` (factor 0) to `to` (factor 1) and beyond: ImagingBlend of Pillow (src/libImaging/Blend.c), which does not round but cut off.
inline uint8_t blend(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return to_byte(value);
}

// What becomes of each pixel value.
using ByteTable = std::array<uint8_t, 256>;

inline void apply_table(const PixelArray& pixels, const ByteTable& table) {
  for (size_t i = 0; i < pixels.num_bytes(); ++i) pixels.data[i] = table[pixels.data[i]];
}

// Tables that are applied to each channel, in place. Each function equals that of torchvision.transforms.functional with its name, applied
// to a PIL image, bit for bit.

// Keeps the upper `bits` bits, 1 to 8.
void posterize(const PixelArray& pixels, int bits);
// Inverts the values from `threshold` on.
void solarize(const PixelArray& pixels, double threshold);
void invert(const PixelArray& pixels);
// Stretches the values of each channel to the whole range.
void autocontrast(const PixelArray& pixels);
// Makes the values of each channel about equally frequent.
void equalize(const PixelArray& pixels);

}  // namespace trainer::data
