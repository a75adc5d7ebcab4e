#pragma once
// The interface to the module images/. It is a separate shared library, so that OpenCV and the more than a hundred libraries that it needs
// are loaded only if an image file is used.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/image_file.h"

namespace trainer::data {

// An image of mode kGrey16 or kRaw; `values` are [height][width][channels].
struct ValueImage {
  int height = 0;
  int width = 0;
  int channels = 0;
  float maximum = 0;  // as in ImageView
  std::vector<float> values = {};
};

// The module's functions; filled in by data/images/image_module.cpp.
struct ImageModule {
  // Encodes the image in the format of the extension (".png"). Returns false with the reason in `refusal` on failure.
  bool (*encode)(const std::string& extension, const RgbImage& image, std::vector<uint8_t>& file, std::string& refusal);
  // Decodes the bytes of a file. Returns false with the reason in `refusal` on failure. May be called by several threads.
  // `is_turned_upright`: as in ImageDecoding.
  bool (*decode)(std::span<const uint8_t> file, bool is_turned_upright, RgbImage& image, std::string& refusal);
  // The same for the modes kGrey16 and kRaw.
  bool (*decode_values)(std::span<const uint8_t> file, const ImageDecoding& decoding, ValueImage& image, std::string& refusal);
  // Sets `size` if parts of the image can be decoded separately. Returns false with the reason in `refusal` if the file is damaged.
  bool (*find_size)(std::span<const uint8_t> file, bool is_turned_upright, std::optional<Box>& size, std::string& refusal);
  // Decodes at least `part`, and sets `part` to what was decoded.
  bool (*decode_part)(std::span<const uint8_t> file, Box& part, RgbImage& image, std::string& refusal);
  // Encodes pixels, [height][width][3], as a JPEG file with the given quality (1 to 100). Returns false with a refusal on failure.
  bool (*encode_jpeg)(const uint8_t* pixels, int height, int width, int quality, std::vector<uint8_t>& file, std::string& refusal);
  ImageTraits (*read_traits)(std::span<const uint8_t> file);
  // Resizes pixels, [height][width][3], to `out`, [new_height][new_width][3]. Returns false with a refusal on failure.
  bool (*resize_linear)(const uint8_t* pixels, int height, int width, int new_height, int new_width, uint8_t* out, std::string& refusal);
  // Writes a line of ASCII text into the box. Returns false with a refusal on failure.
  bool (*draw_text)(RgbImage& image, const Box& box, const std::string& text, std::string& refusal);
};

// The name and type of the module's only exported function.
inline constexpr const char* kImageModuleEntry = "trainer_image_module";
using ImageModuleEntry = const ImageModule* (*)();

}  // namespace trainer::data
