#pragma once
// The interface to the module images/. It is a separate shared library, so that OpenCV and the more than a hundred libraries that it needs
// are loaded only if an image file is used.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/image_file.h"

namespace trainer::data {

// An image of mode kGrey16 or kRaw; `values` are [height][width][channels].
struct ValueImage {
  int height = 0;
  int width = 0;
  int channels = 0;
  float maximum = 0;  // as in ImageView
  std::vector<float> values = {};
  // The range of float64 values before they were rounded, and the largest change by rounding one.
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
  double error = 0;

  float rounded(double value) {
    least = std::min(least, value);
    greatest = std::max(greatest, value);
    const auto result = static_cast<float>(value);
    error = std::max(error, std::abs(value - result));
    return result;
  }
};

// The module's functions; filled in by data/images/image_module.cpp. They may be called by several threads, and throw an std::exception
// with only the reason.
struct ImageModule {
  // `pixels`: [height][width][3]. `extension`: of the format (".png"). `quality`: 1 to 100, of a JPEG file; null: the default.
  std::vector<uint8_t> (*encode)(const std::string& extension, const uint8_t* pixels, int height, int width, std::optional<int> quality);
  // `is_turned_upright`: as in ImageDecoding.
  void (*decode)(std::span<const uint8_t> file, bool is_turned_upright, RgbImage& image);
  // The same for the modes kGrey16 and kRaw.
  void (*decode_values)(std::span<const uint8_t> file, const ImageDecoding& decoding, ValueImage& image);
  // Empty unless parts of the image can be decoded separately.
  std::optional<Box> (*find_size)(std::span<const uint8_t> file, bool is_turned_upright);
  // Decodes at least `part`, and returns what was decoded.
  Box (*decode_part)(std::span<const uint8_t> file, const Box& part, RgbImage& image);
  ImageTraits (*read_traits)(std::span<const uint8_t> file);
  // Resizes pixels, [height][width][3], to `out`, [new_height][new_width][3].
  void (*resize_linear)(const uint8_t* pixels, int height, int width, int new_height, int new_width, uint8_t* out);
  // Writes a line of ASCII text into the box.
  void (*draw_text)(RgbImage& image, const Box& box, const std::string& text);
};

// The name and type of the module's only exported function.
inline constexpr const char* kImageModuleEntry = "trainer_image_module";
using ImageModuleEntry = const ImageModule* (*)();

}  // namespace trainer::data
