#pragma once
// The image that transforms work on: a window into stored pixels. Crop and flip only change the window; the pixels are read once, by the
// loop that writes the network's input.

#include <cstdint>

namespace trainer::input {

enum class Padding { kZero, kReflect };

// A planar uint8 image (channel after channel, row by row), of which a window is used. The window may extend beyond the
// edges; `padding` defines the values there. `mirrored` reads each row of the window from right to left.
struct ImageView {
  const uint8_t* pixels = nullptr;  // [channels][height][width]
  int channels = 0;
  int height = 0;
  int width = 0;
  int top = 0;  // window's first row and column, in the stored image's coordinates
  int left = 0;
  int window_height = 0;
  int window_width = 0;
  bool mirrored = false;
  Padding padding = Padding::kZero;

  static ImageView whole(const uint8_t* pixels, int channels, int height, int width) {
    return {pixels, channels, height, width, 0, 0, height, width, false, Padding::kZero};
  }
  bool operator==(const ImageView&) const = default;
};

}  // namespace trainer::input
