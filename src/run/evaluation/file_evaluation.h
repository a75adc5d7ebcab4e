#pragma once
// Evaluates the network of a file, without the parts that only training needs.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment.h"
#include "datasets/dataset_registry.h"
#include "inference/operating_point.h"
#include "run/evaluation/decisions.h"
#include "run/network/network_file.h"
#include "run/rank/rank_context.h"
#include "train/engine/validations.h"
#include "trainer/task.h"

namespace trainer::evaluation {

// The images that an evaluation uses are a part of the experiment's data set, or other data, whose labels are matched to the names of the
// network's classes.
struct EvaluationRequest {
  std::filesystem::path config;  // the experiment file for weights, or to replace a checkpoint's experiment; may be empty
  std::vector<std::string> overrides;
  std::optional<task::TestTimeAugmentation> tta;  // instead of validation.tta
  // A CSV file, a folder of class folders, or a folder written by `trainer data pack`, which is evaluated instead of the experiment's data
  // set; may be empty.
  std::filesystem::path data;
  // Not set: the validation set, or all samples of other data that has none.
  std::optional<data::Split> split;
  bool averaged = false;              // whether to use the moving averages of the parameters
  engine::ObserveBatch observe = {};  // engine::evaluate_model()
  // Called on rank 0 before each round of batches; may be empty.
  std::function<void(int64_t num_done, int64_t num_samples)> report = {};
};

// The network's experiment, with the data to evaluate. If this data is not the data set of the training run, dataset.validation_split is 0
// and dataset.split is not set, unless an override sets them. On ranks that may not have access to the data, the experiment is not checked.
// Throws UsageError and CheckpointError.
config::Experiment load_evaluation(const network::NetworkFile& file, const EvaluationRequest& request, int rank,
                                   const config::Registries& registries);

// The data to evaluate with an experiment from load_evaluation().
struct EvaluationData {
  data::DatasetFactory dataset;  // with the names of the network's classes, if it has any
  data::Split split = data::Split::kValidation;
  bool is_all = false;    // whether all samples are evaluated, because the data is not that of the training run and has no parts
  std::string name = {};  // such as "the validation set" or "data/test"
  std::string note = {};  // a warning if training would hold out only a part of these samples; may be empty
};

// To be called on ranks that read the data. Throws UsageError if the data has a class that the network was not trained on, has no test part
// although request.split is the test part, or has several parts and request.split is not set.
EvaluationData find_evaluation_data(const config::Experiment& experiment, const network::NetworkFile& file,
                                    const EvaluationRequest& request);

struct EvaluationResult {
  task::Measurement measured;
  std::vector<std::string> output_names;  // names of the network's classes or targets; on rank 0
  bool is_image = true;                   // whether the samples are images
  bool is_all = false;                    // as in EvaluationData; on rank 0
  std::string name;                       // as in EvaluationData; on rank 0
  // The results of the operating point of a calibrated checkpoint; on rank 0, unless the request has an `observe`.
  struct OperatingPointResult {
    inference::OperatingPoint point;
    double calibration_error = 0;  // with the point's temperature
    DecisionResult decisions;
  };
  std::optional<OperatingPointResult> operating_point = {};
  // With several classes for a sample, `measured` is at the thresholds that predict uses. These metrics are at thresholds that were chosen
  // on the evaluated samples.
  reporting::Metrics refitted_metrics = {};
};

// Collective: evaluates the network of `file` on every sample of the data to evaluate, transformed by dataset.validation_transforms.
// Returns nothing after a stop request. The context's experiment must come from load_evaluation(). Opens only the evaluated split, unless
// it is a part of the training files. Throws UsageError if the data has other classes than the file, CheckpointError if the weights do not
// fit, and DataError.
std::optional<EvaluationResult> evaluate(rank::RankContext& context, const network::NetworkFile& file, const EvaluationRequest& request);

}  // namespace trainer::evaluation
