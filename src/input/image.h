#pragma once
// A window into stored pixels, so that a crop or a flip copies nothing before the one loop that writes the network's input.

#include <cstdint>

namespace trainer::input {

enum class Padding { kZero, kReflect };

// Planar: [channels][height][width]. Interleaved: [height][width][channels].
enum class PixelOrder { kPlanar, kInterleaved };

// A rectangle of pixels.
struct Box {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
};

// A window into a uint8 image. The window may extend beyond the image's edges; `padding` defines the pixels there. `mirrored` reads each
// row of the window from right to left, `flipped` the rows from bottom to top.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int channels = 0;
  int height = 0;
  int width = 0;
  int top = 0;  // window's first row and column, in the stored image's coordinates
  int left = 0;
  int window_height = 0;
  int window_width = 0;
  bool mirrored = false;
  Padding padding = Padding::kZero;
  PixelOrder order = PixelOrder::kPlanar;
  bool flipped = false;

  static ImageView whole(const uint8_t* pixels, int channels, int height, int width, PixelOrder order = PixelOrder::kPlanar) {
    return {pixels, channels, height, width, 0, 0, height, width, false, Padding::kZero, order, false};
  }
  bool operator==(const ImageView&) const = default;
};

}  // namespace trainer::input
