#pragma once
// Geometric operations without interpolation: each pixel of the result is that of the image into which its centre falls, or 0 outside. They
// equal those of torchvision.transforms.functional on PIL images bit for bit.

#include <array>

#include "trainer/transform.h"

namespace trainer::data {

// The place (a x + b y + c, d x + e y + f) in the image that the result has at (x, y): {a, b, c, d, e, f}.
using AffineMatrix = std::array<double, 6>;

// Of a rotation about the image's middle, counter-clockwise; degrees as Pillow's Image.rotate.
AffineMatrix rotation(double degrees, int height, int width);
// Moves the image to the right and down.
AffineMatrix translation(int right, int down, int height, int width);
// As torchvision's affine() with shear [atan(x), 0] or [0, atan(y)] about the upper left corner.
AffineMatrix shear(double x, double y);

// `out`: memory of the same size, which is not that of `pixels`. Image.transform(size, AFFINE, matrix, NEAREST) of Pillow.
void transform_affine(const PixelArray& pixels, const AffineMatrix& matrix, uint8_t* out);
// By 90 degrees counter-clockwise, or clockwise. The image is square.
void rotate_quarter(const PixelArray& pixels, bool clockwise, uint8_t* out);

}  // namespace trainer::data
