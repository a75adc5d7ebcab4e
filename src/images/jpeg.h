#pragma once
// JPEG files by libjpeg-turbo, with the settings of Pillow: the accurate inverse transform, and interpolated colours.

#include <cstdint>
#include <span>

#include "input/image_file.h"

namespace trainer::images {

bool is_jpeg(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason. Like Pillow, it is strict about missing data and ignores libjpeg's warnings.
void decode_jpeg(std::span<const uint8_t> file, input::RgbImage& image);

}  // namespace trainer::images
