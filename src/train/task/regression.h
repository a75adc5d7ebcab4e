#pragma once
// Regression: targets are numbers.

#include <memory>

#include "trainer/keys.h"
#include "trainer/task.h"

namespace trainer::task {

struct RegressionOptions {
  bool normalize_targets = true;
  void describe(KeyTable& keys);
};

// Throws UsageError for a loss that needs class labels.
// With `normalize_targets` the loss compares the outputs of the network with (target - mean) / deviation, where mean and deviation are
// those of the training targets (Task::set_target_summary). The outputs of a pass are always in the unit of the targets.
std::unique_ptr<Task> make_regression(std::unique_ptr<nn::Loss> loss, const RegressionOptions& options = {});

}  // namespace trainer::task
