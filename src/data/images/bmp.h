#pragma once
// BMP files.

#include <cstdint>
#include <span>

#include "data/image_file.h"

namespace trainer::images {

bool is_bmp(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason.
void decode_bmp(std::span<const uint8_t> file, data::RgbImage& image);

}  // namespace trainer::images
