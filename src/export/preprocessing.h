#pragma once
// How the pixels of an image become the input of a network, in the terms in which an exported file can compute it.

#include <cstdint>
#include <variant>
#include <vector>

#include "data/dataset.h"
#include "trainer/component.h"

namespace trainer::exported {

// As Pillow resizes images of 8 bits: first the rows, then the columns, each rounded to whole values.
struct ResizeStep {
  enum class Fit {
    kExact,
    kShorter,  // `height` is the length of the shorter edge
    kLonger,   // `height` is the length of the longer edge
    kInside,   // the largest size with the image's proportions that is not greater
  };
  Fit fit = Fit::kExact;
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

// Pixels of one value around the image: so many on each side, or as many on opposite sides as a frame needs that is not smaller.
struct PadStep {
  struct Margins {
    int64_t left = 0;
    int64_t top = 0;
    int64_t right = 0;
    int64_t bottom = 0;
  };
  struct Frame {
    int64_t height = 0;
    int64_t width = 0;
  };
  std::variant<Margins, Frame> size;
  int64_t fill = 0;
};

// From uint8 images [batch, height, width, channels].
struct Preprocessing {
  int64_t channels = 3;  // 1: grey; 3: red, green, blue
  std::vector<std::variant<ResizeStep, CropStep, PadStep>> steps = {};
  // At last (pixel / 255 - mean) / std, of each channel.
  std::vector<float> mean = {};
  std::vector<float> std = {};
};

// `transforms`: of images of any size, as `info` tells; the last `num_given` of them are dataset.validation_transforms. Throws UsageError
// that names the first one that is random or unknown here.
Preprocessing read_preprocessing(const std::vector<ComponentConfig>& transforms, size_t num_given, const data::DatasetInfo& info);

}  // namespace trainer::exported
