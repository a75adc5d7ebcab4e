#pragma once
// The image formats except TIFF (tiff.h) and WebP (decode.h).

#include <cstdint>
#include <span>
#include <vector>

#include "data/image_module.h"
#include "data/images/traits.h"

namespace trainer::images {

// Checks of BMP files before OpenCV reads them.

bool is_bmp(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason if the pixels are missing or too many, or if OpenCV reads other colours than Pillow.
void check_bmp(std::span<const uint8_t> file);

// Binary PGM and PPM files (P5 and P6).

bool is_pnm(std::span<const uint8_t> file);

// These functions throw std::runtime_error with the reason.
void decode_pnm(std::span<const uint8_t> file, data::RgbImage& image);
// For a grey file whose header gives a maximum above 255; like Pillow, scales the maximum to 65535.
void decode_pnm_grey_16(std::span<const uint8_t> file, data::ValueImage& image);
void read_pnm_traits(std::span<const uint8_t> file, data::ImageTraits& traits);

// Sets are_channels_first and the mode as defined in data::ImageTraits. Throws std::runtime_error with the reason.
void read_npy_traits(std::span<const uint8_t> file, data::ImageTraits& traits);

// .npy files of NumPy with arrays [height, width] or [height, width, channels] of uint8, uint16, int16, float32 or float64.

bool is_npy(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason.
void decode_npy(std::span<const uint8_t> file, data::ValueImage& image, RoundedValues& wide);

// Checks of PNG files before OpenCV reads them, and the part of the file that is passed to OpenCV.

bool is_png(std::span<const uint8_t> file);

struct PngParts {
  bool is_grey_16 = false;  // one channel of 16 bits
  // The PNG file with only its header, palette, data and end chunks, because OpenCV's libpng writes warnings about other chunks to stderr.
  std::vector<uint8_t> file;
};

// Throws std::runtime_error with the reason if the file is truncated, its header or a checksum is wrong, or the image is too large.
PngParts read_png(std::span<const uint8_t> file);

// JPEG files, read with libjpeg-turbo and Pillow's settings: the accurate inverse transform (JDCT_ISLOW), and interpolated chroma ("fancy
// upsampling").

bool is_jpeg(std::span<const uint8_t> file);

// Whether the image is progressive, or stores its colour components in separate scans. Reads only the header; the tables may be missing, as
// in a TIFF file. Throws like decode_jpeg().
bool has_several_scans(std::span<const uint8_t> file);

// Throws std::runtime_error with the reason. Like Pillow, rejects files with missing data and ignores libjpeg's warnings.
void decode_jpeg(std::span<const uint8_t> file, data::RgbImage& image);

// Returns (0, 0, height, width) from the header. Throws like decode_jpeg().
data::Box find_jpeg_size(std::span<const uint8_t> file);
// Decodes at least the given part of the image, to the same pixels as decode_jpeg(), and returns the part that was decoded. Reads the file
// only as far as needed. Throws like decode_jpeg().
data::Box decode_jpeg_part(std::span<const uint8_t> file, const data::Box& part, data::RgbImage& image);

}  // namespace trainer::images
