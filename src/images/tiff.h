#pragma once
// TIFF files, by libtiff. OpenCV's reader would multiply colours by their transparency and convert inks and 16 bits other than Pillow.

#include <cstdint>
#include <span>

#include "data/image_file.h"

namespace trainer::images {

bool is_tiff(std::span<const uint8_t> file);

// The first image of the file, turned as the file's orientation says, as Pillow does with TIFF. Throws std::runtime_error with the reason,
// for a form whose pixels would not be Pillow's too.
void decode_tiff(std::span<const uint8_t> file, data::RgbImage& image);

}  // namespace trainer::images
