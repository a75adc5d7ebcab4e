#pragma once
// How the pixels of an image become the input of a network, in the terms in which an exported file can compute it.

#include <cstdint>
#include <variant>
#include <vector>

#include "data/dataset.h"
#include "trainer/component.h"

namespace trainer::exported {

// Antialiased, as Pillow resizes images of 8 bits: first the rows, then the columns, each rounded to whole values.
struct ResizeStep {
  bool keeps_proportions = false;  // `height` is the length of the shorter edge
  int64_t height = 0;
  int64_t width = 0;
  data::Interpolation interpolation = data::Interpolation::kBilinear;
};

// The middle of the image. Where it is smaller, black is added.
struct CropStep {
  int64_t height = 0;
  int64_t width = 0;
  bool may_pad = false;  // whether an image can be smaller
};

// From uint8 images [batch, height, width, channels].
struct Preprocessing {
  int64_t channels = 3;  // 1: grey; 3: red, green, blue
  std::vector<std::variant<ResizeStep, CropStep>> steps = {};
  // At last (pixel / 255 - mean) / std, of each channel.
  std::vector<float> mean = {};
  std::vector<float> std = {};
};

// `transforms`: of images of any size, as `info` tells; the last `num_given` of them are dataset.validation_transforms. Throws UsageError
// that names the first one that is random or unknown here.
Preprocessing read_preprocessing(const std::vector<ComponentConfig>& transforms, size_t num_given, const data::DatasetInfo& info);

}  // namespace trainer::exported
