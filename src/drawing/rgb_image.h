#pragma once

#include <cstdint>
#include <vector>

namespace trainer::drawing {

struct RgbImage {
  int height = 0;
  int width = 0;
  std::vector<uint8_t> pixels;  // [height][width][3], red first
};

}  // namespace trainer::drawing
