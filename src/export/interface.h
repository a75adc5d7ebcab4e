#pragma once
// What an exported network takes and returns.

#include <cstdint>
#include <optional>

#include "export/preprocessing.h"

namespace trainer::exported {

enum class Outputs { kLogits, kProbabilities, kBoth };

struct Interface {
  std::optional<Preprocessing> preprocessing = {};  // of uint8 images of any size; not set: the input is that of the network
  Outputs outputs = Outputs::kLogits;
  double temperature = 1;  // by which the logits are divided before the softmax
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

}  // namespace trainer::exported
