#pragma once
// Operations on the pixels of an image.

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "trainer/transform.h"

namespace trainer::data {

// Geometric operations without interpolation: each pixel of the result is the pixel of the image that contains its centre, or 0 outside.
// They are bitwise equal to those of torchvision.transforms.functional on PIL images.

// {a, b, c, d, e, f}: the result at (x, y) comes from the place (a x + b y + c, d x + e y + f) in the image.
using AffineMatrix = std::array<double, 6>;

// Rotates counter-clockwise about the image's middle, like Pillow's Image.rotate.
AffineMatrix rotation(double degrees, int height, int width);
// Moves the image right and down.
AffineMatrix translation(int right, int down);
// Like torchvision's affine() with shear [atan(x), 0] or [0, atan(y)] about the upper left corner.
AffineMatrix shear(double x, double y);

// Like Pillow's Image.transform(size, AFFINE, matrix, NEAREST). `out`: memory of the same size, which must not overlap `pixels`.
void transform_affine(const PixelArray& pixels, const AffineMatrix& matrix, uint8_t* out);
// Rotates by 90 degrees clockwise or counter-clockwise. The image must be square.
void rotate_quarter(const PixelArray& pixels, bool clockwise, uint8_t* out);

// Operations on the colours of an image, in place. Each is bitwise equal to the function of torchvision.transforms.functional with the
// same name, applied to a PIL image. Images have 1 or 3 channels; images with 1 channel correspond to PIL's mode L.

// Sets all channels to the grey value.
void to_grayscale(const PixelArray& pixels);
void adjust_brightness(const PixelArray& pixels, float factor);
void adjust_contrast(const PixelArray& pixels, float factor);
// Does not change grey images; neither does adjust_hue().
void adjust_saturation(const PixelArray& pixels, float factor);
// -0.5 <= shift <= 0.5, in turns around the circle of hues.
void adjust_hue(const PixelArray& pixels, double shift);

// Clips and truncates, in a form that compilers vectorise.
inline uint8_t to_byte(float value) { return static_cast<uint8_t>(static_cast<int>(std::min(std::max(value, 0.0F), 255.0F))); }

// Blends from `from` (factor 0) to `to` (factor 1) and beyond, like Pillow's ImagingBlend (src/libImaging/Blend.c), which truncates instead
// of rounding.
inline uint8_t blend(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return to_byte(value);
}

// A result for each pixel value.
using ByteTable = std::array<uint8_t, 256>;

inline void apply_table(const PixelArray& pixels, const ByteTable& table) {
  for (size_t i = 0; i < pixels.num_bytes(); ++i) pixels.data[i] = table[pixels.data[i]];
}

// The same for operations that apply a table to each channel.

// Keeps the upper `bits` bits, 1 to 8.
void posterize(const PixelArray& pixels, int bits);
// Inverts the values from `threshold` on.
void solarize(const PixelArray& pixels, double threshold);
void invert(const PixelArray& pixels);
// Stretches the values of each channel to the whole range.
void autocontrast(const PixelArray& pixels);
// Makes all values of each channel about equally frequent.
void equalize(const PixelArray& pixels);

// Operations on neighbourhoods of pixels. `out`: memory of the same size, which must not overlap `pixels`.

// The shape of a Gaussian filter.
struct BlurShape {
  int width = 1;  // of the kernel; odd, and half of it is less than the image's width
  int height = 1;
  double sigma = 1;
};

// Buffers that grow as needed and are reused between calls; each thread needs its own.
struct BlurMemory {
  std::vector<float> weights;
  std::vector<float> padded;        // one row with its reflected edges
  std::vector<float> blurred_rows;  // rows after the filter along x
};

// Like torchvision's gaussian_blur of a PIL image, which reflects the image at its edges. Filters along x and then along y, so results may
// differ by 1 if the exact value is within about 1e-4 of the middle between two integers.
void gaussian_blur(const PixelArray& pixels, const BlurShape& shape, BlurMemory& memory, uint8_t* out);

// Bitwise equal to adjust_sharpness of torchvision.transforms.functional, applied to a PIL image.
void adjust_sharpness(const PixelArray& pixels, float factor, uint8_t* out);

}  // namespace trainer::data
