#pragma once
// Reads and writes image files with the image module. In a build without OpenCV (TRAINER_WITH_OPENCV=OFF), the functions throw UsageError.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/dataset.h"

namespace trainer::data {

struct RgbImage {
  int height = 0;
  int width = 0;
  std::vector<uint8_t> pixels = {};  // [height][width][3], red first
};

// Throws like write_image_file() if the extension is not that of a supported format.
void check_image_extension(const std::filesystem::path& path);
// The file name extension selects the format (.png, .jpg …). Writes like write_output_file() (base/file.h).
void write_image_file(const std::filesystem::path& path, const RgbImage& image);

// Memory into which images are decoded; each thread needs its own.
struct DecodedMemory {
  std::vector<uint8_t> pixels;
  std::vector<float> values;
};
// Decodes an image file as `decoding` specifies. The view is interleaved and valid until `memory` changes. Throws like the other
// decode_image() (trainer/dataset.h). This function and the following ones may be called by several threads.
ImageView decode_image(std::span<const uint8_t> file, const ImageDecoding& decoding, DecodedMemory& memory);
// Converts RGB pixels, [height][width][3], to grey pixels in the same memory, like Pillow's convert("L").
ImageView make_grey(std::vector<uint8_t>& pixels, int height, int width);
// Returns the image size from the file's header if parts of the image can be decoded separately (JPEG); nullopt if it must be decoded
// whole.
std::optional<Box> find_size(std::span<const uint8_t> file, const ImageDecoding& decoding);
// Decodes at least the given part of an image for which find_size() has returned a size. The part must be inside the image and not empty.
// The window of the result is the part; more pixels of the image may be stored around it. Damage outside the part may not be found.
ImageView decode_part(std::span<const uint8_t> file, const Box& part, const ImageDecoding& decoding, std::vector<uint8_t>& pixels);

// Properties in the header of an image file that the decoded pixels do not show.
struct ImageTraits {
  int orientation = 1;               // EXIF orientation: 1 is upright, 2 to 8 are rotated or mirrored
  int bits = 8;                      // per channel
  ImageMode mode = ImageMode::kRgb;  // kRgb if this mode supports the image, otherwise kGrey16 or kRaw
  int64_t pages = 1;                 // images of a TIFF file, of which the first is read; not counting smaller copies and masks
  bool are_channels_first = false;   // whether an array, read as [height, width, channels], looks like [channels, height, width]
};
// Reads JPEG, PNG, WebP, TIFF, PNM and .npy files without decoding them; other and damaged files have the default values.
ImageTraits find_traits(std::span<const uint8_t> file);

// Encodes RGB pixels, [height][width][3], as a JPEG file with the given quality (1 to 100). Throws like decode_image().
std::vector<uint8_t> encode_jpeg(const uint8_t* pixels, int height, int width, int quality);

// Writes a line of ASCII text into a box of the image, which must be inside it; what does not fit is cut off. Throws like decode_image().
void draw_text(RgbImage& image, const Box& box, const std::string& text);

// Resizes RGB pixels, [height][width][3], to `out`, [new_height][new_width][3], by cv::resize with cv::INTER_LINEAR, as many applications
// do. Throws like decode_image().
void resize_without_antialiasing(const uint8_t* pixels, int height, int width, int new_height, int new_width, uint8_t* out);

}  // namespace trainer::data
