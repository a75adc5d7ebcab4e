#pragma once
// The memory used by Picture (trainer/transform.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/image_file.h"
#include "data/operations/operations.h"
#include "data/resample.h"
#include "trainer/transform.h"

namespace trainer::data {

// Buffers that grow as needed and are reused for each Picture; each thread needs its own.
struct PictureMemory {
  DecodedMemory decoded;                       // for decoding an image file
  std::array<std::vector<uint8_t>, 2> pixels;  // results of the latest operations
  std::array<std::vector<float>, 2> values;    // the same for images without 8-bit pixels
  std::size_t next = 0;                        // index of the buffer to write next
  std::vector<uint8_t> rows;                   // used by ImageWriter::write()
  std::vector<float> window;                   // used by ImageWriter::write_values()
  ResampleMemory resample;
  BlurMemory blur;
  std::unique_ptr<PictureMemory> mask;  // for the mask of an image; null before the first mask
};

}  // namespace trainer::data
