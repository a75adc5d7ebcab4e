#pragma once

#include "data/picture.h"

namespace trainer::data {

// Rotates the picture counter-clockwise about its middle and leaves its size as it is; what comes from outside is black. Equals
// Image.rotate of Pillow (src/PIL/Image.py), without interpolation, bit for bit.
void rotate(Picture& picture, double degrees);

}  // namespace trainer::data
