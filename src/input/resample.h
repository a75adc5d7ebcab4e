#pragma once
// Antialiased bilinear resampling that equals Pillow's Image.resize(…, BILINEAR, box) bit for bit (src/libImaging/Resample.c of Pillow, its
// 8-bit code): torchvision's resize of PIL images.

#include <cstdint>
#include <vector>

#include "input/image.h"

namespace trainer::input {

// The stored pixels that one output row or column is made of, and their weights.
struct Taps {
  int count = 0;  // for one output
  std::vector<int32_t> begin;
  std::vector<int32_t> weights;  // `count` for each output, fixed-point
};

// Buffers that grow as needed and are reused from call to call; one for each thread.
struct ResampleMemory {
  Taps horizontal;
  Taps vertical;
  std::vector<double> unrounded;
  std::vector<uint8_t> between;  // the result of the first pass
};

// The part of the source's stored image that resample() reads with the same arguments; the source needs no pixels yet.
Box needed_part(const ImageView& source, int height, int width, const Box& part, ResampleMemory& memory);

// Resamples the source's window to height x width pixels, and writes the part `part` of them to `out`, [part.height][part.width][channels].
// The window must lie within the stored image, and its pixels beyond the window do not count; it must be neither mirrored nor flipped.
void resample(const ImageView& source, int height, int width, const Box& part, ResampleMemory& memory, uint8_t* out);

}  // namespace trainer::input
