#pragma once

#include <functional>
#include <optional>

#include "engine/parts.h"
#include "task/task.h"

namespace trainer::engine {

struct Evaluation {
  task::Measurement model;
  std::optional<task::Measurement> ema;  // where there are averaged parameters
};

// Collective: the metrics of the model, and of the same with the averaged parameters, in eval mode, over every sample of the validation set
// once. Its batches are the same for any number of ranks and dealt whole to them, so that the metrics are the same to the last digit. Under
// autocast where training is. Asks `should_stop`, which answers alike on all ranks, before each round of batches; a stopped evaluation has
// no result. Leaves the model in train mode.
std::optional<Evaluation> evaluate(Parts& parts, const std::function<bool()>& should_stop);

}  // namespace trainer::engine
