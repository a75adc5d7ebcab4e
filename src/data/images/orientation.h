#pragma once
// Rotates and mirrors images by the orientation numbers of TIFF and EXIF.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace trainer::images {

// `pixels`: the member of `image` with its values, [height][width][channels]. Leaves the image unchanged unless `orientation` is 2 to 8.
template <class Image, class T>
void turn_upright(int orientation, int channels, Image& image, std::vector<T>& pixels) {
  if (orientation < 2 || orientation > 8) return;
  const bool is_turned = orientation >= 5;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const int height = is_turned ? image.width : image.height;
  const int width = is_turned ? image.height : image.width;
  std::vector<T> turned(pixels.size());
  auto out = turned.begin();
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const int column = is_turned ? y : x;
      const int row = is_turned ? x : y;
      const auto from_x = static_cast<size_t>(from_right ? image.width - 1 - column : column);
      const auto from_y = static_cast<size_t>(from_bottom ? image.height - 1 - row : row);
      const auto from = (from_y * static_cast<size_t>(image.width) + from_x) * static_cast<size_t>(channels);
      out = std::copy_n(pixels.begin() + static_cast<std::ptrdiff_t>(from), channels, out);
    }
  }
  image.height = height;
  image.width = width;
  pixels = std::move(turned);
}

}  // namespace trainer::images
