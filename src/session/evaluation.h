#pragma once
// Evaluates a network that is in a file, without the parts that only training needs.

#include <optional>
#include <string>
#include <vector>

#include "session/evaluation_data.h"
#include "session/network_file.h"
#include "session/rank_context.h"
#include "trainer/task.h"

namespace trainer::session {

struct EvaluationResult {
  task::Measurement measured;
  std::vector<std::string> class_names;  // of the network; on rank 0
  bool is_image = true;                  // what the samples are
  bool is_all = false;                   // as in EvaluationData, on rank 0, like the next
  std::string name;                      // of the samples
};

// Collective: the measurements of the network of `file` over every sample of the data that is evaluated, each transformed by
// dataset.validation_transforms; nothing when asked to stop. The context's experiment is one of load_evaluation(). Opens one split alone,
// unless it is a part of the training files. Throws UsageError if the data has other classes than the file, CheckpointError if the weights
// do not fit, and DataError.
std::optional<EvaluationResult> evaluate(RankContext& context, const NetworkFile& file, const EvaluationRequest& request);

}  // namespace trainer::session
