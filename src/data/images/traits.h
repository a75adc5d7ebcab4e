#pragma once
// What the header of an image file says that its pixels, as they are read, do not show.

#include <cstdint>
#include <span>

#include "data/image_module.h"

namespace trainer::images {

// Of JPEG, PNG, WebP, TIFF, PNM and .npy files. What a damaged file does not say has its default.
data::ImageTraits read_traits(std::span<const uint8_t> file);

// How large an image may be.

// Throws std::runtime_error for an image without pixels, or one too large. For use before memory is allocated.
void check_size(uint64_t width, uint64_t height);

// The same for an image of so many values, all channels together.
void check_num_values(uint64_t width, uint64_t height, uint64_t channels);

// For a file whose data cannot give so many pixels. For use before memory is allocated.
[[noreturn]] void throw_too_little_data(uint64_t width, uint64_t height);

// Give `image` the room for so many pixels. Throw as check_size() and check_num_values().
void allocate(uint32_t width, uint32_t height, data::RgbImage& image);
void allocate_values(uint64_t width, uint64_t height, uint64_t channels, data::ValueImage& image);

}  // namespace trainer::images
