#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainer::drawing {

struct RgbImage {
  int height = 0;
  int width = 0;
  std::vector<uint8_t> pixels;  // [height][width][3], red first
};

// The bytes of a PNG file (8 bits, red, green and blue). Throws Error if there is too little memory.
std::string encode_png(const RgbImage& image);

}  // namespace trainer::drawing
