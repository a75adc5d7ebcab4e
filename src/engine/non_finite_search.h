#pragma once
// Where in a step the first value that is not finite appears.

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

// Collective like TrainStep::run: repeats the passes of one micro-step with an observer. Returns, in their order, the images, all layers'
// outputs and the loss, and of parameters and of this rank's own gradients those that are not finite. Leaves everything as it was, but for
// gradients, which are dropped.
std::vector<Observation> observe_micro_step(Parts& parts, TrainStep& train_step, const input::Batch& batch, const MicroStep& micro_step);

// The first observation that is not finite, or null.
const Observation* first_non_finite(const std::vector<Observation>& observations);

}  // namespace trainer::engine
