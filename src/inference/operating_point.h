#pragma once
// How the outputs of a classifier become probabilities and decisions. `trainer calibrate` stores it in a checkpoint.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer/state.h"

namespace trainer::inference {

struct OperatingPoint {
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
// What the threshold decides for is never rejected. An image with a probability that is not finite is rejected.
Decision decide(const OperatingPoint& point, std::span<const double> probabilities);

// The key of a checkpoint, for its parameters or for the moving averages of them.
const char* operating_point_key(bool averaged);
state::Dict tree_of(const OperatingPoint& point);
// Of the checkpoint of a network with so many classes; the default, which changes nothing, if it was not calibrated. Throws
// CheckpointError.
OperatingPoint read_operating_point(const state::Tree& file, const std::string& source, bool averaged, int64_t num_classes);

}  // namespace trainer::inference
