#pragma once
// The conversion of an image's pixels to the input of a network, in steps that an exported file can compute.

#include <cstdint>
#include <variant>
#include <vector>

#include "data/dataset.h"
#include "trainer/component.h"

namespace trainer::exported {

// Resizes like Pillow resizes 8-bit images: along one axis, then along the other, with rounding to integers after each. The sizes determine
// which axis comes first.
struct ResizeStep {
  enum class Fit {
    kExact,
    kShorter,  // `height` is the length of the shorter edge
    kLonger,   // `height` is the length of the longer edge
    kInside,   // the largest size with the image's proportions that fits into height x width
  };
  Fit fit = Fit::kExact;
  int64_t height = 0;
  int64_t width = 0;
  data::Interpolation interpolation = data::Interpolation::kBilinear;
};

// Crops the image to its middle. If the image is smaller, black is added.
struct CropStep {
  int64_t height = 0;
  int64_t width = 0;
  bool may_pad = false;  // whether an image can be smaller
};

// Adds pixels of one value around the image. Margins: the number of pixels on each side. Frame: the image is centred in a frame of this
// size, which is not smaller than the image.
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

// The preprocessing of uint8 images [batch, height, width, channels].
struct Preprocessing {
  int64_t channels = 3;  // 1 for grey, 3 for red, green and blue
  std::vector<std::variant<ResizeStep, CropStep, PadStep>> steps = {};
  // Finally, (pixel / 255 - mean) / std is computed for each channel.
  std::vector<float> mean = {};
  std::vector<float> std = {};
};

// `transforms` and `info`: from inference::input_of_image_files(); the last `num_given` transforms are dataset.validation_transforms.
// Throws UsageError that names the first transform that is random or not supported.
Preprocessing read_preprocessing(const std::vector<ComponentConfig>& transforms, size_t num_given, const data::DatasetInfo& info);

}  // namespace trainer::exported
