#include "data/transforms/rotate.h"

#include <cmath>

#include "data/operations/affine.h"

namespace trainer::data {

void rotate(Picture& picture, double degrees) {
  // Python's %: from 0 to 360.
  double angle = std::fmod(degrees, 360);
  if (angle < 0) angle += 360;
  if (angle == 0) return;
  if (angle == 180) {
    picture.mirror();
    picture.flip();
    return;
  }
  const auto pixels = picture.pixels();
  if ((angle == 90 || angle == 270) && pixels.height == pixels.width) {
    rotate_quarter(pixels, /*clockwise=*/angle == 270, picture.replace_pixels());
  } else {
    transform_affine(pixels, rotation(angle, pixels.height, pixels.width), picture.replace_pixels());
  }
}

}  // namespace trainer::data
