#pragma once
// How the outputs of a network become its answers: probabilities and decisions, or numbers.

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/dataset.h"
#include "trainer/state.h"

namespace trainer::inference {

// What a network tells of an image.
enum class AnswerKind {
  kClass,    // the probabilities of classes of which one is right: a softmax
  kClasses,  // the probability of each class for itself: a sigmoid
  kNumbers,
};
AnswerKind answer_kind(const data::DatasetInfo& samples);

struct OperatingPoint {
  AnswerKind kind = AnswerKind::kClass;
  // Of kClasses: the probability of each class from which on an image is of the class, the best of the latest validation.
  std::vector<double> thresholds = {};
  // Of kNumbers: by what the outputs are multiplied, and what is then added; empty: they are the numbers.
  std::vector<double> deviation = {};
  std::vector<double> mean = {};
  // Of kClass, stored by `trainer calibrate`.
  double temperature = 1;   // by which the outputs are divided before the softmax
  double reject_below = 0;  // an image is rejected if the class that is decided for is less probable, but not for the threshold's class
  // An image is of this class if the class is at least that probable, whatever else is more probable, and only then.
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
// Of kClass. What the threshold decides for is never rejected. An image with a probability that is not finite is rejected.
Decision decide(const OperatingPoint& point, std::span<const double> probabilities);

// The key of a checkpoint, for its parameters or for the moving averages of them.
const char* operating_point_key(bool averaged);
state::Dict tree_of(const OperatingPoint& point);
// Of the checkpoint of a network for such samples. If it holds none of this, outputs count as they are and thresholds are 0.5. Throws
// CheckpointError.
OperatingPoint read_operating_point(const state::Tree& file, const std::string& source, bool averaged, const data::DatasetInfo& samples);

// The probabilities or numbers, float64 [N, outputs], of the outputs of a network, [N, outputs] in a floating type.
torch::Tensor answers_of(const OperatingPoint& point, const torch::Tensor& outputs);

}  // namespace trainer::inference
