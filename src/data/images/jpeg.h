#pragma once
// JPEG files by libjpeg-turbo, with the settings of Pillow: the accurate inverse transform, and interpolated colours.

#include <cstdint>
#include <span>

#include "data/image_file.h"

namespace trainer::images {

bool is_jpeg(std::span<const uint8_t> file);

// Whether the image is progressive, or has its colours one after the other. Reads only the header, also of one whose tables are elsewhere.
// Throws as decode_jpeg().
bool has_several_scans(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason. Like Pillow, it is strict about missing data and ignores libjpeg's warnings.
void decode_jpeg(std::span<const uint8_t> file, data::RgbImage& image);

// (0, 0, height, width), from the header. Throws as decode_jpeg().
data::Box find_jpeg_size(std::span<const uint8_t> file);
// Decodes at least that part of the image, to the same pixels as decode_jpeg(), and returns the part that it has decoded. Reads the file
// only as far as needed. Throws as decode_jpeg().
data::Box decode_jpeg_part(std::span<const uint8_t> file, const data::Box& part, data::RgbImage& image);

}  // namespace trainer::images
