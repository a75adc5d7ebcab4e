#pragma once
// Image files to pixels, as Pillow gives them.

#include <cstdint>
#include <span>

#include "data/image_file.h"

namespace trainer::images {

// Throws std::runtime_error with the reason, or std::bad_alloc.
void decode(std::span<const uint8_t> file, data::RgbImage& image);

// What is checked of a WebP file before OpenCV reads it.

bool is_webp(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason why the file is not read.
void check_webp(std::span<const uint8_t> file);

}  // namespace trainer::images
