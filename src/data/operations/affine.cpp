// Sources: src/PIL/Image.py (rotate) and src/libImaging/Geometry.c (ImagingTransformAffine) of Pillow, _get_inverse_affine_matrix in
// torchvision/transforms/functional.py.

#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>

#include "data/operations/operations.h"

namespace trainer::data {
namespace {

constexpr int kOutside = -1;

// Python's math.radians and math.degrees.
double radians(double degrees) { return degrees * (std::numbers::pi / 180); }
double degrees(double radians) { return radians * (180 / std::numbers::pi); }

// Python's round(value, 15) for |value| <= 1: to the nearest decimal number, halves to even.
double round_decimals(double value) {
  std::array<char, 32> text;
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 15);
  double rounded = 0;
  std::from_chars(text.data(), written.ptr, rounded);
  return rounded;
}

int index_of(double place) { return place < 0 ? kOutside : static_cast<int>(place); }

// kChannels: the number of channels if it is known at compile time, otherwise 0.
template <int kChannels>
void copy_pixel(const PixelArray& pixels, int y, int x, uint8_t* out) {
  const int channels = kChannels > 0 ? kChannels : pixels.channels;
  const uint8_t* from = pixels.data + (static_cast<ptrdiff_t>(y) * pixels.width + x) * channels;
  for (int c = 0; c < channels; ++c) out[c] = from[c];
}

// `index` converts a coordinate to the number of a row or column. Coordinates are accumulated from pixel to pixel, as in Pillow.
template <int kChannels, class Place, class Index>
void copy_along_lines(const PixelArray& pixels, const std::array<Place, 6>& matrix, Index index, uint8_t* out) {
  const int channels = kChannels > 0 ? kChannels : pixels.channels;
  Place line_x = matrix[2];
  Place line_y = matrix[5];
  for (int y = 0; y < pixels.height; ++y) {
    Place place_x = line_x;
    Place place_y = line_y;
    for (int x = 0; x < pixels.width; ++x, out += channels) {
      const int from_x = index(place_x);
      const int from_y = index(place_y);
      if (from_x >= 0 && from_x < pixels.width && from_y >= 0 && from_y < pixels.height) {
        copy_pixel<kChannels>(pixels, from_y, from_x, out);
      }
      place_x += matrix[0];
      place_y += matrix[3];
    }
    line_x += matrix[1];
    line_y += matrix[4];
  }
}

template <class Place, class Index>
void copy_along_lines(const PixelArray& pixels, const std::array<Place, 6>& matrix, Index index, uint8_t* out) {
  if (pixels.channels == 3) {
    copy_along_lines<3>(pixels, matrix, index, out);
  } else {
    copy_along_lines<0>(pixels, matrix, index, out);
  }
}

// Pillow's check_fixed: whether the source of corner (x, y) can be represented in 16 bits.
bool fits_fixed_point(const AffineMatrix& matrix, int x, int y) {
  return std::abs(x * matrix[0] + y * matrix[1] + matrix[2]) < 32768 && std::abs(x * matrix[3] + y * matrix[4] + matrix[5]) < 32768;
}

int fixed_point(double value) { return static_cast<int>(std::floor(value * 65536 + 0.5)); }

}  // namespace

AffineMatrix rotation(double degrees, int height, int width) {
  const double angle = -radians(degrees);
  const double cosine = round_decimals(std::cos(angle));
  const double sine = round_decimals(std::sin(angle));
  const double center_x = width / 2.0;
  const double center_y = height / 2.0;
  AffineMatrix matrix = {cosine, sine, 0, round_decimals(-std::sin(angle)), cosine, 0};
  matrix[2] = matrix[0] * -center_x + matrix[1] * -center_y + center_x;
  matrix[5] = matrix[3] * -center_x + matrix[4] * -center_y + center_y;
  return matrix;
}

AffineMatrix translation(int right, int down) { return {1, 0, static_cast<double>(-right), 0, 1, static_cast<double>(-down)}; }

AffineMatrix shear(double x, double y) {
  const double shear_x = radians(degrees(std::atan(x)));
  const double shear_y = radians(degrees(std::atan(y)));
  return {-std::sin(-shear_y) * std::tan(shear_x) / std::cos(shear_y) + 1,
          std::cos(-shear_y) * std::tan(shear_x) / std::cos(shear_y),
          0,
          -std::sin(-shear_y) / std::cos(shear_y),
          std::cos(-shear_y) / std::cos(shear_y),
          0};
}

void transform_affine(const PixelArray& pixels, const AffineMatrix& matrix, uint8_t* out) {
  std::memset(out, 0, pixels.num_bytes());
  const auto& [a, b, c, d, e, f] = matrix;
  const int height = pixels.height;
  const int width = pixels.width;
  const bool scales_only = b == 0 && d == 0;  // Pillow then uses ImagingScaleAffine, without fixed-point numbers
  if (!scales_only && fits_fixed_point(matrix, 0, 0) && fits_fixed_point(matrix, width, height) && fits_fixed_point(matrix, 0, height) &&
      fits_fixed_point(matrix, width, 0)) {
    const std::array<int, 6> fixed = {fixed_point(a), fixed_point(b), fixed_point(c + a * 0.5 + b * 0.5),
                                      fixed_point(d), fixed_point(e), fixed_point(f + d * 0.5 + e * 0.5)};
    copy_along_lines(
        pixels, fixed, [](int place) { return place >> 16; }, out);
  } else {
    const AffineMatrix at_centers = {a, b, c + b * 0.5 + a * 0.5, d, e, f + e * 0.5 + d * 0.5};
    copy_along_lines(pixels, at_centers, index_of, out);
  }
}

void rotate_quarter(const PixelArray& pixels, bool clockwise, uint8_t* out) {
  const int last = pixels.width - 1;
  for (int y = 0; y <= last; ++y) {
    for (int x = 0; x <= last; ++x, out += pixels.channels) {
      clockwise ? copy_pixel<0>(pixels, last - x, y, out) : copy_pixel<0>(pixels, x, last - y, out);
    }
  }
}

}  // namespace trainer::data
