#pragma once
// What the header of an image file says that its pixels, as they are read, do not show.

#include <cstdint>
#include <span>

#include "data/image_file.h"

namespace trainer::images {

// Of JPEG, PNG, WebP, TIFF and PNM files. What a damaged file does not say has its default.
data::ImageTraits read_traits(std::span<const uint8_t> file);

}  // namespace trainer::images
