#pragma once
// Converts the outputs of a network to its answers: probabilities and decisions, or numbers.

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/dataset.h"
#include "trainer/state.h"

namespace trainer::inference {

// What the outputs of a network for one image mean; it depends only on the targets of the data set.
enum class AnswerKind {
  kClass,    // probabilities of classes, exactly one of which is correct: a softmax
  kClasses,  // a separate probability of each class: a sigmoid
  kNumbers,
};
AnswerKind answer_kind(const data::DatasetInfo& samples);

struct OperatingPoint {
  AnswerKind kind = AnswerKind::kClass;
  // For kClasses: the minimum probability of each class for an image to belong to it, as found in the latest validation.
  std::vector<double> thresholds = {};
  // For kNumbers: the factors by which the outputs are multiplied, and the numbers that are then added; if empty, the outputs are not
  // changed.
  std::vector<double> deviation = {};
  std::vector<double> mean = {};
  // For kClass, stored by `trainer calibrate`.
  double temperature = 1;   // the outputs are divided by it before the softmax
  double reject_below = 0;  // an image is rejected if the probability of its class is below this, unless `threshold` chose the class
  // An image belongs to this class if and only if the class has at least this probability, even if other classes are more probable.
  struct Threshold {
    int64_t label = 0;
    double probability = 0;
    bool operator==(const Threshold&) const = default;
  };
  std::optional<Threshold> threshold = {};

  bool operator==(const OperatingPoint&) const = default;
};

struct Decision {
  int64_t label = 0;
  bool is_rejected = false;
};
// For kClass. An image whose class is chosen by the threshold is never rejected. An image with a probability that is not finite is
// rejected.
Decision decide(const OperatingPoint& point, std::span<const double> probabilities);

// The checkpoint's key for the operating point of the parameters or, if `averaged`, of their moving averages.
const char* operating_point_key(bool averaged);
state::Dict tree_of(const OperatingPoint& point);
// Reads the operating point of a checkpoint's network, which was trained on `samples`. If the checkpoint holds no operating point, the
// outputs are not changed and the thresholds are 0.5. Throws CheckpointError if the stored values are not valid.
OperatingPoint read_operating_point(const state::Tree& file, const std::string& source, bool averaged, const data::DatasetInfo& samples);

// Converts the outputs of a network, [N, outputs] in a floating-point type, to probabilities or numbers, float64 [N, outputs].
torch::Tensor answers_of(const OperatingPoint& point, const torch::Tensor& outputs);

}  // namespace trainer::inference
