#pragma once
// The built-in tasks (trainer/task.h), and what they have in common.

#include "trainer/keys.h"
#include "trainer/task.h"

namespace trainer::task {

// Throws UsageError for a loss that does not take class labels.
std::unique_ptr<Task> make_classification(std::unique_ptr<nn::Loss> loss);
// Throws UsageError for a loss that does not treat each class independently.
std::unique_ptr<Task> make_multi_label(std::unique_ptr<nn::Loss> loss);

struct RegressionOptions {
  bool normalize_targets = true;
  void describe(KeyTable& keys);
};
// Throws UsageError for a loss that needs class labels. With `normalize_targets` the loss compares the outputs of the network with
// (target - mean) / deviation, where mean and deviation are those of the training targets (Task::set_target_summary). The outputs of a pass
// are always in the unit of the targets.
std::unique_ptr<Task> make_regression(std::unique_ptr<nn::Loss> loss, const RegressionOptions& options = {});

// The task of an experiment without task.name. `is_multi_label`: whether the images of its data set can have any number of labels.
std::string default_task(const nn::Loss& loss, bool is_multi_label = false);

// The metrics of all tasks, each once. Tables and checkpoints have these columns for every task, empty if the task lacks the metric.
reporting::MetricColumns all_metrics();

// Throws std::logic_error for an invalid name of a metric: one that is empty, has characters other than lower-case letters, digits and
// underscores, or has another meaning in the files of a run.
void check_metric_name(const std::string& name);

}  // namespace trainer::task
