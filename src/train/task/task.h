#pragma once
// The tasks of the program (trainer/task.h), and what they have in common.

#include "trainer/task.h"

namespace trainer::task {

// The task of an experiment that names none. `is_multi_label`: of its data set.
std::string default_task(const nn::Loss& loss, bool is_multi_label = false);

// The metrics of all tasks, each once. Tables and checkpoints have these columns for every task, empty if the task lacks the metric.
reporting::MetricColumns all_metrics();

// Throws std::logic_error for a name that a metric cannot have: one with other characters than small letters, digits and underscores, or
// one that means something else in the files of a run.
void check_metric_name(const std::string& name);

}  // namespace trainer::task
