#pragma once
// Resampling that equals Pillow's Image.resize(…, BILINEAR, BICUBIC, LANCZOS or NEAREST, box) bit for bit (src/libImaging/Resample.c of
// Pillow, its 8-bit code, and Geometry.c): torchvision's resize of PIL images.

#include <cstdint>
#include <vector>

#include "trainer/dataset.h"

namespace trainer::data {

// The stored pixels that one output row or column is made of, and their weights.
struct Taps {
  int count = 0;  // for one output
  std::vector<int32_t> begin;
  std::vector<int32_t> weights;       // `count` for each output, fixed-point; of an image with values empty
  std::vector<double> exact_weights;  // of an image with values: the same before they are rounded
};

// Buffers that grow as needed and are reused from call to call; one for each thread.
struct ResampleMemory {
  Taps horizontal;
  Taps vertical;
  std::vector<double> unrounded;
  std::vector<uint8_t> between;       // the result of the first pass
  std::vector<float> values_between;  // the same of resample_values()
};

// Prepares resample() with the same arguments. Returns the part of the source's window that it reads, counted from the window's corner; the
// source needs no pixels yet.
Box prepare_resample(const ImageView& source, int height, int width, const Box& part, Interpolation interpolation, ResampleMemory& memory);

// Resamples the source's window to height x width pixels, and writes the part `part` of them to `out`, [part.height][part.width][channels].
// `needed` is the result of prepare_resample(); the stored image must have at least that part of the window. The window must be neither
// mirrored nor flipped, and pixels beyond it do not count.
void resample(const ImageView& source, int height, int width, const Box& part, const Box& needed, ResampleMemory& memory, uint8_t* out);
// The same of an image with values: as Pillow's modes "I;16" (but larger results than 65535 become that) and "F", of each channel alone.
void resample_values(const ImageView& source, int height, int width, const Box& part, const Box& needed, ResampleMemory& memory,
                     float* out);

}  // namespace trainer::data
