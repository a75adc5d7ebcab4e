#pragma once
// The input and outputs of an exported network.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "export/preprocessing.h"

namespace trainer::exported {

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
