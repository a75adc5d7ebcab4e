#pragma once
// Evaluates a network that is in a file, without the parts that only training needs.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "datasets/registry.h"
#include "inference/operating_point.h"
#include "run/session/decisions.h"
#include "run/session/network_file.h"
#include "run/session/rank_context.h"
#include "trainer/task.h"

namespace trainer::session {

// Which images an evaluation measures: a part of the experiment's data set, or data that the training did not know, whose labels follow the
// names of the network's classes.

struct EvaluationRequest {
  std::filesystem::path config;  // the experiment of a file that holds only weights, or in place of a checkpoint's; may be empty
  std::vector<std::string> overrides;
  std::optional<task::TestTimeAugmentation> tta;  // in place of that of the experiment
  // A CSV file, a folder of class folders, or one that `trainer data pack` has written, which is evaluated in place of the data set of the
  // experiment; may be empty.
  std::filesystem::path data;
  // Not set: the validation set, or all of the data if they are others than those of the training and have none.
  std::optional<data::Split> split;
  bool averaged = false;  // the moving averages of the parameters
  // Called with each batch of this process, in the order of the samples, with what the loss gets (nn::Loss); may be empty.
  std::function<void(const torch::Tensor& outputs, const torch::Tensor& targets)> observe = {};
};

// The experiment of the network on the data that is evaluated. If these are others than those of the training, dataset.validation_split
// holds nothing out unless an override says so. On ranks that may not see the data it is not checked. Throws UsageError and
// CheckpointError.
config::Experiment load_evaluation(const NetworkFile& file, const EvaluationRequest& request, int rank,
                                   const config::Registries& registries);

// What an experiment of load_evaluation() evaluates.
struct EvaluationData {
  data::DatasetFactory dataset;  // with the names of the network's classes, if it has any
  data::Split split = data::Split::kValidation;
  bool is_all = false;    // all samples of data that the training did not know, which have no parts
  std::string name = {};  // "the validation set", "data/test"
  std::string note = {};  // what differs from the split of the training; may be empty
};

// On a rank that reads the data. Throws UsageError if it has a class that the network was not trained on, or several parts of which none
// was chosen.
EvaluationData find_evaluation_data(const config::Experiment& experiment, const NetworkFile& file, const EvaluationRequest& request);

struct EvaluationResult {
  task::Measurement measured;
  std::vector<std::string> output_names;  // of the network's classes or numbers; on rank 0
  bool is_image = true;                   // what the samples are
  bool is_all = false;                    // as in EvaluationData, on rank 0, like the next
  std::string name;                       // of the samples
  // What the operating point of a calibrated checkpoint is worth; on rank 0, unless the request has an `observe`.
  struct OperatingPointResult {
    inference::OperatingPoint point;
    double calibration_error = 0;  // with its temperature
    DecisionResult decisions;
  };
  std::optional<OperatingPointResult> operating_point = {};
};

// Collective: the measurements of the network of `file` over every sample of the data that is evaluated, each transformed by
// dataset.validation_transforms; nothing when asked to stop. The context's experiment is one of load_evaluation(). Opens one split alone,
// unless it is a part of the training files. Throws UsageError if the data has other classes than the file, CheckpointError if the weights
// do not fit, and DataError.
std::optional<EvaluationResult> evaluate(RankContext& context, const NetworkFile& file, const EvaluationRequest& request);

}  // namespace trainer::session
