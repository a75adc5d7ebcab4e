#pragma once
// Finds the first non-finite value of a step.

#include <string>
#include <vector>

#include "engine/train_step.h"

namespace trainer::engine {

// A tensor of a forward and backward pass.
struct Observation {
  std::string what;  // "the output of layer1.0.conv1"
  std::vector<int64_t> shape;
  double largest = 0;          // absolute value of its finite values
  int64_t num_non_finite = 0;  // of its values
};

// Collective like TrainStep::run: repeats the passes of one micro-step with an observer. Returns, in order, non-finite parameters, the
// images, the outputs of all layers, the loss, and non-finite gradients of this rank alone. Changes nothing except that gradients are
// cleared.
std::vector<Observation> observe_micro_step(Parts& parts, TrainStep& train_step, const data::Batch& batch, const MicroStep& micro_step);

// The first observation that is not finite, or null.
const Observation* first_non_finite(const std::vector<Observation>& observations);

}  // namespace trainer::engine
