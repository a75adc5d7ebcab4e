#pragma once
// Operations on neighbourhoods of pixels. `out`: memory of the same size, which is not that of `pixels`.

#include <vector>

#include "trainer/transform.h"

namespace trainer::data {

// Of a Gaussian filter.
struct BlurShape {
  int width = 1;  // of the kernel: odd, and its half is less than the image's width
  int height = 1;
  double sigma = 1;
};

// Buffers that grow as needed and are reused from call to call; one for each thread.
struct BlurMemory {
  std::vector<float> weights;
  std::vector<float> padded;        // one row
  std::vector<float> blurred_rows;  // along x
};

// As torchvision's gaussian_blur of a PIL image, which reflects the image at its edges. It sums the products of a kernel of two dimensions
// in float, in an order that depends on the processor; this function filters along x and then along y, which takes less time. Where the
// exact value is within about 1e-4 of the middle between two integers, results may therefore differ by 1.
void gaussian_blur(const PixelArray& pixels, const BlurShape& shape, BlurMemory& memory, uint8_t* out);

// Equals adjust_sharpness of torchvision.transforms.functional, applied to a PIL image, bit for bit.
void adjust_sharpness(const PixelArray& pixels, float factor, uint8_t* out);

}  // namespace trainer::data
