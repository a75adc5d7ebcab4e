#pragma once
// Classification: targets are class labels.

#include "task/calibration.h"
#include "trainer/task.h"

namespace trainer::task {

// The metrics of a validation without the loss: those of the program and those that were added.
const std::vector<ClassMetric>& class_metrics();

// Throws UsageError for a loss of other targets.
std::unique_ptr<Task> make_classification(std::unique_ptr<nn::Loss> loss);

}  // namespace trainer::task
