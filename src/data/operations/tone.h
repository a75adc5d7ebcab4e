#pragma once
// Tables that are applied to each channel, in place. Each function equals that of torchvision.transforms.functional with its name, applied
// to a PIL image, bit for bit.

#include "trainer/transform.h"

namespace trainer::data {

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
