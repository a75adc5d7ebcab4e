#pragma once
// Decodes image files to the same pixels as Pillow. Functions throw std::runtime_error with the reason, or std::bad_alloc.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "data/image_module.h"

namespace trainer::images {

// `is_turned_upright`: as in data::ImageDecoding.
void decode(std::span<const uint8_t> file, bool is_turned_upright, data::RgbImage& image);
// For the modes kGrey16 and kRaw.
void decode_values(std::span<const uint8_t> file, const data::ImageDecoding& decoding, data::ValueImage& image);

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

// The type of the values of an image in mode kRaw.
struct ValueType {
  char kind = '?';  // as in NumPy: unsigned (u) or signed integers (i), or floating-point numbers (f)
  int bits = 0;
  bool is_swapped = false;  // whether the bytes are in the opposite of the processor's order

  bool is_supported() const {
    return (kind == 'u' && (bits == 8 || bits == 16)) || (kind == 'i' && bits == 16) || (kind == 'f' && (bits == 32 || bits == 64));
  }
  // As in ImageView.
  float maximum() const { return kind != 'u' ? 0.0F : bits == 8 ? 255.0F : 65535.0F; }
  // The value at `at`, which need not be aligned.
  float read(const uint8_t* at, data::ValueImage& image) const {
    const auto load = [&]<class T>(T) {
      std::array<uint8_t, sizeof(T)> bytes{};
      std::copy_n(at, sizeof(T), bytes.begin());
      if (is_swapped) std::ranges::reverse(bytes);
      return std::bit_cast<T>(bytes);
    };
    if (bits == 8) return *at;
    if (kind == 'u') return load(uint16_t{});
    if (kind == 'i') return load(int16_t{});
    return bits == 64 ? image.rounded(load(double{})) : load(float{});
  }
};

bool is_webp(std::span<const uint8_t> file);

// Binary PGM and PPM files (P5 and P6).

bool is_pnm(std::span<const uint8_t> file);
void decode_pnm(std::span<const uint8_t> file, data::RgbImage& image);
// For a grey file whose header gives a maximum above 255; like Pillow, scales the maximum to 65535.
void decode_pnm_grey_16(std::span<const uint8_t> file, data::ValueImage& image);
void read_pnm_traits(std::span<const uint8_t> file, data::ImageTraits& traits);

// .npy files of NumPy with arrays [height, width] or [height, width, channels] of uint8, uint16, int16, float32 or float64.

bool is_npy(std::span<const uint8_t> file);
void decode_npy(std::span<const uint8_t> file, data::ValueImage& image);
// Sets are_channels_first and the mode.
void read_npy_traits(std::span<const uint8_t> file, data::ImageTraits& traits);

// PNG files, of which a part is passed to OpenCV.

bool is_png(std::span<const uint8_t> file);

struct PngParts {
  bool is_grey_16 = false;  // one channel of 16 bits
  // The PNG file with only its header, palette, data and end chunks, because OpenCV's libpng writes warnings about other chunks to stderr.
  std::vector<uint8_t> file;
};

// Refuses a file that is truncated or has a wrong header or checksum.
PngParts read_png(std::span<const uint8_t> file);
// Sets the number of bits and the mode, and returns the EXIF data, which may be empty.
std::span<const uint8_t> read_png_traits(std::span<const uint8_t> file, data::ImageTraits& traits);

// JPEG files, read with libjpeg-turbo and Pillow's settings: the accurate inverse transform (JDCT_ISLOW), and interpolated chroma ("fancy
// upsampling"). Like Pillow, rejects files with missing data and ignores libjpeg's warnings.

bool is_jpeg(std::span<const uint8_t> file);
// Whether the image is progressive, or stores its colour components in separate scans. Reads only the header; the tables may be missing, as
// in a TIFF file.
bool has_several_scans(std::span<const uint8_t> file);
void decode_jpeg(std::span<const uint8_t> file, data::RgbImage& image);
// Returns (0, 0, height, width) from the header.
data::Box find_jpeg_size(std::span<const uint8_t> file);
// Decodes at least the given part of the image, to the same pixels as decode_jpeg(), and returns the part that was decoded. Reads the file
// only as far as needed.
data::Box decode_jpeg_part(std::span<const uint8_t> file, const data::Box& part, data::RgbImage& image);

// TIFF files, read with libtiff, because OpenCV multiplies colours by alpha, and converts CMYK and 16-bit values differently from Pillow.

bool is_tiff(std::span<const uint8_t> file);
// Decodes the first image of the file and applies the file's orientation, like Pillow. Also refuses kinds of TIFF whose pixels would differ
// from Pillow's.
void decode_tiff(std::span<const uint8_t> file, data::RgbImage& image);
// Decodes all samples of the first image; they must be uint8, uint16, int16 or floating-point.
void decode_tiff_values(std::span<const uint8_t> file, data::ValueImage& image);
// Sets the number of bits and the mode.
void read_tiff_traits(std::span<const uint8_t> file, data::ImageTraits& traits);
// ImageTraits::pages, for which the whole file is searched.
int64_t count_pages(std::span<const uint8_t> file);

}  // namespace trainer::images
