#pragma once
// Properties in the header of an image file that the decoded pixels do not show.

#include <cstdint>
#include <span>

#include "data/image_module.h"

namespace trainer::images {

// Reads JPEG, PNG, WebP, TIFF, PNM and .npy files. Properties that cannot be read from a damaged file have their default values.
data::ImageTraits read_traits(std::span<const uint8_t> file);

// The limits of an image's size.

// Throw std::runtime_error if an image has no pixels or is too large. Call before allocating memory.
void check_size(uint64_t width, uint64_t height);
void check_num_values(uint64_t width, uint64_t height, uint64_t channels);

// For a file whose data are too short for this number of pixels. Call before allocating memory.
[[noreturn]] void throw_too_little_data(uint64_t width, uint64_t height);

// Allocate memory for the pixels of `image`, after these checks.
void allocate(uint32_t width, uint32_t height, data::RgbImage& image);
void allocate_values(uint64_t width, uint64_t height, uint64_t channels, data::ValueImage& image);

}  // namespace trainer::images
