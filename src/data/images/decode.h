#pragma once
// Decodes image files to the same pixels as Pillow.

#include <cstdint>
#include <span>

#include "data/image_module.h"

namespace trainer::images {

// These functions throw std::runtime_error with the reason, or std::bad_alloc. `is_turned_upright`: as in data::ImageDecoding.
void decode(std::span<const uint8_t> file, bool is_turned_upright, data::RgbImage& image);
// For the modes kGrey16 and kRaw.
void decode_values(std::span<const uint8_t> file, const data::ImageDecoding& decoding, data::ValueImage& image);

// Checks of WebP files before OpenCV reads them.

bool is_webp(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason if the file is truncated, an animation or too large.
void check_webp(std::span<const uint8_t> file);

}  // namespace trainer::images
