#pragma once

#include <functional>
#include <optional>

#include "train/engine/parts.h"
#include "trainer/task.h"

namespace trainer::engine {

struct Evaluation {
  task::Measurement model;
  std::optional<task::Measurement> ema;  // empty without averaged parameters
};

// Collective: the metrics of the model in eval mode, over every sample of `source` once. The batches are the same for any number of ranks,
// and each batch is evaluated by one rank, so that the metrics are the same to the last digit. Outputs are averaged over the views of
// `tta`. Uses autocast if training does. Calls `should_stop`, which must return the same value on all ranks, before each round of batches;
// returns nothing if it returns true. Leaves the model in train mode.
std::optional<task::Measurement> evaluate_model(Network& network, const Ranks& ranks, DataSource& source, task::TestTimeAugmentation tta,
                                                const std::function<bool()>& should_stop);

// The same over the validation set, also with the averaged parameters.
std::optional<Evaluation> evaluate(Parts& parts, task::TestTimeAugmentation tta, const std::function<bool()>& should_stop);

}  // namespace trainer::engine
