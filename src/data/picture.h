#pragma once
// The memory that pictures (trainer/transform.h) use.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/operations/operations.h"
#include "data/resample.h"
#include "trainer/transform.h"

namespace trainer::data {

// Buffers that grow as needed and are reused from picture to picture; one for each thread.
struct PictureMemory {
  std::vector<uint8_t> decoded;                // of an image file
  std::array<std::vector<uint8_t>, 2> pixels;  // the last results of computations
  std::size_t next = 0;                        // of `pixels`, to be written
  std::vector<uint8_t> rows;                   // of write_image()
  ResampleMemory resample;
  BlurMemory blur;
  std::unique_ptr<PictureMemory> mask;  // of the mask of a picture, once there was one
};

}  // namespace trainer::data
