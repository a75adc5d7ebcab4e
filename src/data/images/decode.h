#pragma once
// Image files to pixels, as Pillow gives them.

#include <cstdint>
#include <span>

#include "data/image_module.h"

namespace trainer::images {

// Throw std::runtime_error with the reason, or std::bad_alloc. `is_turned_upright`: as that of data::ImageDecoding.
void decode(std::span<const uint8_t> file, bool is_turned_upright, data::RgbImage& image);
// In the modes kGrey16 and kRaw.
void decode_values(std::span<const uint8_t> file, const data::ImageDecoding& decoding, data::ValueImage& image);

// What is checked of a WebP file before OpenCV reads it.

bool is_webp(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason why the file is not read.
void check_webp(std::span<const uint8_t> file);

}  // namespace trainer::images
