#pragma once
// Resampling that is bitwise equal to Pillow's Image.resize(…, BILINEAR, BICUBIC, LANCZOS or NEAREST, box) (the 8-bit code of
// src/libImaging/Resample.c, and Geometry.c), and thus to torchvision's resize of PIL images.

#include <cstdint>
#include <vector>

#include "trainer/dataset.h"

namespace trainer::data {

// The stored pixels from which each output row or column is computed, and their weights.
struct Taps {
  int count = 0;  // per output
  std::vector<int32_t> begin;
  std::vector<int32_t> weights;       // `count` per output, fixed-point; empty for an image with values
  std::vector<double> exact_weights;  // for an image with values: the weights before they are rounded
};

// Buffers that grow as needed and are reused between calls; each thread needs its own.
struct ResampleMemory {
  Taps horizontal;
  Taps vertical;
  std::vector<double> unrounded;
  std::vector<uint8_t> between;       // the result of the first pass
  std::vector<float> values_between;  // the same for resample_values()
};

// Prepares resample() with the same arguments. Returns the part of the source's window that resample() reads, relative to the window's
// corner. The source does not need pixels yet.
Box prepare_resample(const ImageView& source, int height, int width, const Box& part, Interpolation interpolation, ResampleMemory& memory);

// Resamples the source's window to height x width pixels, and writes the part `part` of the result to `out`,
// [part.height][part.width][channels]. `needed` is the result of prepare_resample(); the stored image must contain at least that part of
// the window. The window must be neither mirrored nor flipped; pixels outside it are not used.
void resample(const ImageView& source, int height, int width, const Box& part, const Box& needed, ResampleMemory& memory, uint8_t* out);
// The same for an image with values: like Pillow's modes "I;16" (but results above 65535 are clipped to 65535) and "F", for each channel
// separately.
void resample_values(const ImageView& source, int height, int width, const Box& part, const Box& needed, ResampleMemory& memory,
                     float* out);

}  // namespace trainer::data
