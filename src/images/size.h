#pragma once
// How large an image may be.

#include <cstdint>

#include "data/image_file.h"

namespace trainer::images {

// Throws std::runtime_error for an image without pixels, or one too large. For use before memory is allocated.
void check_size(uint64_t width, uint64_t height);

// For a file whose data cannot give so many pixels. For use before memory is allocated.
[[noreturn]] void throw_too_little_data(uint64_t width, uint64_t height);

// Gives `image` the room for so many pixels. Throws as check_size().
void allocate(uint32_t width, uint32_t height, data::RgbImage& image);

}  // namespace trainer::images
