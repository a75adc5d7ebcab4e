#pragma once
// Operations on the values of single pixels, in place. Each equals the function of torchvision.transforms.functional with its name, applied
// to a PIL image, bit for bit. Images have 1 or 3 channels; those of 1 channel are PIL's mode L.

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

}  // namespace trainer::data
