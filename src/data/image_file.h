#pragma once
// Image files, read and written by the image module. In a build without OpenCV (TRAINER_WITH_OPENCV=OFF), every call throws UsageError.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reporting/drawing/draw.h"
#include "trainer/dataset.h"

namespace trainer::data {

using drawing::RgbImage;

// Throws as write_image_file() if its extension is not that of a format.
void check_image_extension(const std::filesystem::path& path);
// The file name extension selects the format (.png, .jpg …). Writes as write_output_file() (base/file.h).
void write_image_file(const std::filesystem::path& path, const RgbImage& image);

// Memory into which images are decoded; one for each thread.
struct DecodedMemory {
  std::vector<uint8_t> pixels;
  std::vector<float> values;
};
// An image file as a data set reads it. The view is interleaved and valid until `memory` changes. Throws as the other decode_image()
// (trainer/dataset.h), and may be called by several threads, as the next functions.
ImageView decode_image(std::span<const uint8_t> file, const ImageDecoding& decoding, DecodedMemory& memory);
// Keeps one channel of an image of RGB pixels, [height][width][3], in the same memory: Pillow's convert("L").
ImageView make_grey(std::vector<uint8_t>& pixels, int height, int width);
// The size of an image of which parts can be decoded without the rest (JPEG), from the file's header; nullopt: it must be decoded whole.
std::optional<Box> find_size(std::span<const uint8_t> file, const ImageDecoding& decoding);
// Decodes at least that part of such an image, which must lie within it and not be empty. The result's window is the part; around it are
// more of the image's pixels, or none. Damage beyond the part may not be found.
ImageView decode_part(std::span<const uint8_t> file, const Box& part, const ImageDecoding& decoding, std::vector<uint8_t>& pixels);

// What the header of an image file says that the decoded pixels do not show.
struct ImageTraits {
  int orientation = 1;               // of EXIF: 1 is upright, 2 to 8 are turned or mirrored
  int bits = 8;                      // of each channel
  ImageMode mode = ImageMode::kRgb;  // that keeps what the image has: kRgb, kGrey16 or kRaw
};
// Of JPEG, PNG, WebP, TIFF, PNM and .npy files, without decoding them; others, and damaged ones, have the defaults. Throws UsageError in a
// build without OpenCV. May be called by several threads.
ImageTraits find_traits(std::span<const uint8_t> file);

// A JPEG file of that quality (1 to 100) of RGB pixels, [height][width][3]. Throws as decode_image(). May be called by several threads.
std::vector<uint8_t> encode_jpeg(const uint8_t* pixels, int height, int width, int quality);

// cv::resize with cv::INTER_LINEAR, as many applications resize images: an image of RGB pixels, [height][width][3], to `out`,
// [new_height][new_width][3]. Throws as decode_image(). May be called by several threads.
void resize_without_antialiasing(const uint8_t* pixels, int height, int width, int new_height, int new_width, uint8_t* out);

}  // namespace trainer::data
