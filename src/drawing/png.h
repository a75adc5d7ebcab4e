#pragma once

#include <string>

#include "drawing/rgb_image.h"

namespace trainer::drawing {

// The bytes of a PNG file (8 bits, red, green and blue). Throws Error if there is too little memory.
std::string encode_png(const RgbImage& image);

}  // namespace trainer::drawing
