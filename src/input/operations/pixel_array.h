#pragma once
// The pixels that the operations of this folder read and write.

#include <cstddef>
#include <cstdint>

namespace trainer::input {

// [height][width][channels]
struct PixelArray {
  uint8_t* data = nullptr;
  int channels = 0;
  int height = 0;
  int width = 0;

  size_t num_pixels() const { return static_cast<size_t>(height) * static_cast<size_t>(width); }
  size_t num_bytes() const { return num_pixels() * static_cast<size_t>(channels); }
};

}  // namespace trainer::input
