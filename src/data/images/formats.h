#pragma once
// What this module reads itself of the formats of image files, and what it checks before OpenCV reads the rest.

#include <cstdint>
#include <span>
#include <vector>

#include "data/image_module.h"

namespace trainer::images {

// BMP files.

bool is_bmp(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason.
void decode_bmp(std::span<const uint8_t> file, data::RgbImage& image);

// PBM, PGM and PPM files (P1 to P6).

bool is_pnm(std::span<const uint8_t> file);

// Throw std::runtime_error with the reason.
void decode_pnm(std::span<const uint8_t> file, data::RgbImage& image);
// Of a grey file with values above 255; like Pillow, its largest is scaled to 65535.
void decode_pnm_grey_16(std::span<const uint8_t> file, data::ValueImage& image);
void read_pnm_traits(std::span<const uint8_t> file, data::ImageTraits& traits);

// .npy files of NumPy with arrays [height, width] or [height, width, channels], of 8 or 16 bits without a sign, 16 bits with one, or
// floating-point numbers.

bool is_npy(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason.
void decode_npy(std::span<const uint8_t> file, data::ValueImage& image);

// What is checked of a PNG file before OpenCV reads it, and what OpenCV gets of it.

bool is_png(std::span<const uint8_t> file);

struct PngParts {
  bool is_grey_16 = false;  // one channel of 16 bits
  // A PNG file with only the parts that define the colours. About others, OpenCV's libpng writes warnings to stderr.
  std::vector<uint8_t> file;
};

// Throws std::runtime_error with the reason: for a file that is cut off, a wrong checksum, an image too large.
PngParts read_png(std::span<const uint8_t> file);

// JPEG files by libjpeg-turbo, with the settings of Pillow: the accurate inverse transform, and interpolated colours.

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
