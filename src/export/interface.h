#pragma once
// What an exported network takes and returns.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "export/preprocessing.h"

namespace trainer::exported {

enum class Outputs { kLogits, kAnswers, kBoth };

// How the outputs of the network become its answers: a softmax of the outputs divided by the temperature, a sigmoid, or numbers, the
// outputs times `deviation` plus `mean`, or as they are if these are empty.
struct Answers {
  enum class Kind { kSoftmax, kSigmoid, kNumbers } kind = Kind::kSoftmax;
  double temperature = 1;
  std::vector<double> deviation = {};
  std::vector<double> mean = {};
};

struct Interface {
  std::optional<Preprocessing> preprocessing = {};  // of uint8 images of any size; not set: the input is that of the network
  Outputs outputs = Outputs::kLogits;
  Answers answers = {};
  // Of ONNX alone.
  bool is_half = false;                    // computes in float16; input and outputs keep their types
  std::optional<int64_t> batch_size = {};  // not set: any
  // Of the images, with `preprocessing`; not set: any.
  struct Size {
    int64_t height = 0;
    int64_t width = 0;
  };
  std::optional<Size> image_size = {};
};

// Of the second output. Every name of trainer export but "logits" is one of these.
inline const char* name_of_answers(const Interface& interface) {
  return interface.answers.kind == Answers::Kind::kNumbers ? "values" : "probabilities";
}
inline bool are_answers(std::string_view name) { return name == "probabilities" || name == "values"; }

}  // namespace trainer::exported
