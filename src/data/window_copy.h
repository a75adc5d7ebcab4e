#pragma once
// Copies the stored pixels of a window, with its padding, mirroring and flipping.

#include <cstdint>

#include "trainer/dataset.h"

namespace trainer::data {

// Copies the rows `begin` to `end` of the image's window to `out`: as [channels][end - begin][window_width] if `order` is planar, otherwise
// as [end - begin][window_width][channels]. With reflection the window must extend beyond an edge by less than the stored height or width.
void copy_rows(const ImageView& image, int begin, int end, PixelOrder order, uint8_t* out);
// Copies the window of an image with values to `out`, [window_height][window_width][channels]; padding as in copy_rows().
void copy_values(const ImageView& image, float* out);

}  // namespace trainer::data
