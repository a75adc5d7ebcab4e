#pragma once
// The built-in tasks (trainer/task.h), and what they have in common.

#include "trainer/task.h"

namespace trainer::task {

// The task of an experiment without task.name. `is_multi_label`: whether the images of its data set can have any number of labels.
std::string default_task(const nn::Loss& loss, bool is_multi_label = false);

// The metrics of all tasks, each once. Tables and checkpoints have these columns for every task, empty if the task lacks the metric.
reporting::MetricColumns all_metrics();

// Throws std::logic_error for an invalid name of a metric: one that is empty, has characters other than lower-case letters, digits and
// underscores, or has another meaning in the files of a run.
void check_metric_name(const std::string& name);

}  // namespace trainer::task
