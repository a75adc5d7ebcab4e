#pragma once
// The images of tests/golden/make_resampling.py and make_operations.py, and the checksums and fields in the files that these scripts write.

#include <fmt/format.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "trainer/dataset.h"

namespace trainer::testing {

inline uint64_t fnv1a(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3;
  return hash;
}

// 16 hexadecimal digits, as in the files.
inline std::string fnv1a_text(const std::vector<uint8_t>& bytes) { return fmt::format("{:016x}", fnv1a(bytes)); }

inline std::vector<uint8_t> golden_image(int height, int width, int channels, data::PixelOrder order) {
  std::vector<uint8_t> pixels(static_cast<size_t>(height * width * channels));
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const int at = order == data::PixelOrder::kPlanar ? (c * height + y) * width + x : (y * width + x) * channels + c;
        pixels[static_cast<size_t>(at)] = static_cast<uint8_t>((x * 37 + y * 101 + c * 53 + x * y * 7) % 256);
      }
    }
  }
  return pixels;
}

inline std::vector<std::string> split(const std::string& line, char separator) {
  std::istringstream fields(line);
  std::vector<std::string> parts;
  for (std::string part; std::getline(fields, part, separator);) parts.push_back(part);
  return parts;
}

}  // namespace trainer::testing
