#pragma once
// The interface to the module images/, a separate shared library: OpenCV and the hundred libraries that it needs are loaded only when an
// image file is used.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/image_file.h"

namespace trainer::data {

// [height][width][channels]
struct ValueImage {
  int height = 0;
  int width = 0;
  int channels = 0;
  float maximum = 0;  // as that of ImageView
  std::vector<float> values = {};
};

// The module's functions; filled in by data/images/image_module.cpp.
struct ImageModule {
  // Returns whether `file` is a file of these pixels in the format of the extension (".png"); `refusal` says why not.
  bool (*encode)(const std::string& extension, const RgbImage& image, std::vector<uint8_t>& file, std::string& refusal);
  // Returns whether `image` has the pixels of these bytes of a file; `refusal` says why not. May be called by several threads.
  // `is_turned_upright`: as that of ImageDecoding.
  bool (*decode)(std::span<const uint8_t> file, bool is_turned_upright, RgbImage& image, std::string& refusal);
  // The same in the modes kGrey16 and kRaw.
  bool (*decode_values)(std::span<const uint8_t> file, const ImageDecoding& decoding, ValueImage& image, std::string& refusal);
  // Returns false with a refusal if the file is damaged. `size` is set if parts of the image can be decoded.
  bool (*find_size)(std::span<const uint8_t> file, bool is_turned_upright, std::optional<Box>& size, std::string& refusal);
  // Decodes at least `part`, and sets it to the part that `image` has.
  bool (*decode_part)(std::span<const uint8_t> file, Box& part, RgbImage& image, std::string& refusal);
  // Returns whether `file` is a JPEG file of that quality (1 to 100) of these pixels, [height][width][3].
  bool (*encode_jpeg)(const uint8_t* pixels, int height, int width, int quality, std::vector<uint8_t>& file, std::string& refusal);
  ImageTraits (*read_traits)(std::span<const uint8_t> file);
  // Returns whether `out`, [new_height][new_width][3], has these pixels in its size.
  bool (*resize_linear)(const uint8_t* pixels, int height, int width, int new_height, int new_width, uint8_t* out, std::string& refusal);
};

// Name and type of the module's one exported function.
inline constexpr const char* kImageModuleEntry = "trainer_image_module";
using ImageModuleEntry = const ImageModule* (*)();

}  // namespace trainer::data
