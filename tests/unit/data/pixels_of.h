#pragma once
// Pixels after transforms, row by row, channels interleaved.

#include <cmath>
#include <string>
#include <vector>

#include "data/pipeline.h"
#include "tests/testing/read_component.h"
#include "trainer/torch.h"

namespace trainer::data {

inline std::vector<uint8_t> pixels_of(Picture& picture) {
  const auto pixels = picture.pixels();
  return {pixels.data, pixels.data + pixels.num_bytes()};
}

// Returns the pixels after a list of transforms in YAML.
inline std::vector<uint8_t> transformed(const std::string& yaml, const ImageView& image, PictureMemory& memory) {
  const DatasetInfo info{.shape = {image.channels, image.height, image.width}, .num_classes = 1};
  const Pipeline pipeline(trainer::testing::read_components(transform_registry(), yaml), info, {torch::kFloat64, /*channels_last=*/true});
  std::vector<double> values(static_cast<size_t>(c10::multiply_integers(pipeline.output_shape())));
  Sample sample;
  sample.image = image;
  pipeline.write(sample, {0, 0}, {0}, memory, values.data());
  std::vector<uint8_t> pixels;
  for (const double value : values) pixels.push_back(static_cast<uint8_t>(std::lround(value * 255)));
  return pixels;
}

}  // namespace trainer::data
