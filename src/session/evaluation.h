#pragma once
// Evaluates a network that is in a file, without the parts that only training needs.

#include <optional>
#include <string>
#include <vector>

#include "datasets/registry.h"
#include "session/network_file.h"
#include "session/rank_context.h"
#include "task/meters.h"

namespace trainer::session {

struct EvaluationRequest {
  datasets::Split split = datasets::Split::kValidation;
  bool averaged = false;  // the moving averages of the parameters
};

struct EvaluationResult {
  task::Measurement measured;
  std::vector<std::string> class_names;  // of the data set; on rank 0
};

// Collective: the measurements of the network of `file`, which was built from the context's experiment, over every sample of a split, each
// transformed by dataset.validation_transforms; nothing when asked to stop. Opens that split alone, unless it is a part of the training
// files. Throws UsageError if the classes of the data set are not those of the file, CheckpointError if the weights do not fit, and
// DataError.
std::optional<EvaluationResult> evaluate(RankContext& context, const NetworkFile& file, const EvaluationRequest& request);

}  // namespace trainer::session
