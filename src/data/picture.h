#pragma once
// The memory that pictures (trainer/transform.h) use.

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

// Buffers that grow as needed and are reused from picture to picture; one for each thread.
struct PictureMemory {
  DecodedMemory decoded;                       // of an image file
  std::array<std::vector<uint8_t>, 2> pixels;  // the last results of computations
  std::array<std::vector<float>, 2> values;    // the same of images of other than 8 bits
  std::size_t next = 0;                        // of these, to be written
  std::vector<uint8_t> rows;                   // of write_image()
  std::vector<float> window;                   // of write_image_values()
  ResampleMemory resample;
  BlurMemory blur;
  std::unique_ptr<PictureMemory> mask;  // of the mask of a picture, once there was one
};

}  // namespace trainer::data
