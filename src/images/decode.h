#pragma once
// Image files to pixels, as Pillow gives them.

#include <cstdint>
#include <span>

#include "input/image_file.h"

namespace trainer::images {

// Throws std::runtime_error with the reason, or std::bad_alloc.
void decode(std::span<const uint8_t> file, input::RgbImage& image);

}  // namespace trainer::images
