#pragma once
// The input and outputs of an exported network.

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "data/dataset.h"
#include "trainer/component.h"

namespace trainer::exported {

// The conversion of an image's pixels to the input of a network is in steps that an exported file can compute.

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

enum class Outputs { kLogits, kAnswers, kBoth };

// How the outputs of the network are converted to its answers. kSoftmax: softmax(outputs / temperature); kSigmoid: a sigmoid; kNumbers:
// outputs * deviation + mean in float64, which holds any mean, or the unchanged outputs if both vectors are empty.
struct Answers {
  enum class Kind { kSoftmax, kSigmoid, kNumbers } kind = Kind::kSoftmax;
  double temperature = 1;
  std::vector<double> deviation = {};
  std::vector<double> mean = {};
};

struct Interface {
  std::optional<Preprocessing> preprocessing = {};  // if set, the input is uint8 images, otherwise the network's own input
  Outputs outputs = Outputs::kLogits;
  Answers answers = {};
  // The following members have an effect only on ONNX files.
  bool is_half = false;                    // whether to compute in float16; input and outputs keep their types
  std::optional<int64_t> batch_size = {};  // any if not set
  // Size of the images if there is `preprocessing`; any if not set.
  struct Size {
    int64_t height = 0;
    int64_t width = 0;
  };
  std::optional<Size> image_size = {};
};

// The name of the input of an ONNX file.
inline const char* name_of_input(const Interface& interface) { return interface.preprocessing ? "image" : "images"; }

// The name of the output with the answers. All output names of trainer export except "logits" are names of answers.
inline const char* name_of_answers(const Interface& interface) {
  return interface.answers.kind == Answers::Kind::kNumbers ? "values" : "probabilities";
}
inline bool are_answers(std::string_view name) { return name == "probabilities" || name == "values"; }

}  // namespace trainer::exported
