#pragma once
// Operations on the pixels of an image.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "trainer/transform.h"

namespace trainer::data {

// Geometric operations without interpolation: each pixel of the result is that of the image into which its centre falls, or 0 outside. They
// equal those of torchvision.transforms.functional on PIL images bit for bit.

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

// Operations on the values of single pixels, in place. Each equals the function of torchvision.transforms.functional with its name, applied
// to a PIL image, bit for bit. Images have 1 or 3 channels; those of 1 channel are PIL's mode L.

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

// Operations on neighbourhoods of pixels. `out`: memory of the same size, which is not that of `pixels`.

// Of a Gaussian filter.
struct BlurShape {
  int width = 1;  // of the kernel: odd, and its half is less than the image's width
  int height = 1;
  double sigma = 1;
};

// Buffers that grow as needed and are reused from call to call; one for each thread.
struct BlurMemory {
  std::vector<float> weights;
  std::vector<float> padded;        // one row
  std::vector<float> blurred_rows;  // along x
};

// As torchvision's gaussian_blur of a PIL image, which reflects the image at its edges. It sums the products of a kernel of two dimensions
// in float, in an order that depends on the processor; this function filters along x and then along y, which takes less time. Where the
// exact value is within about 1e-4 of the middle between two integers, results may therefore differ by 1.
void gaussian_blur(const PixelArray& pixels, const BlurShape& shape, BlurMemory& memory, uint8_t* out);

// Equals adjust_sharpness of torchvision.transforms.functional, applied to a PIL image, bit for bit.
void adjust_sharpness(const PixelArray& pixels, float factor, uint8_t* out);

}  // namespace trainer::data
