#pragma once
// Targets are floating-point vectors; the loss is the only metric.

#include "task/task.h"

namespace trainer::task {

std::unique_ptr<Task> make_regression(std::unique_ptr<nn::Loss> loss);

}  // namespace trainer::task
