#pragma once
// The validation metric that chooses the best checkpoint.

#include "config/sections/checkpoint.h"
#include "reporting/metric.h"
#include "task/task.h"

namespace trainer::engine {

reporting::MetricInfo monitored_metric(const config::CheckpointSection& section, const task::Task& task);

}  // namespace trainer::engine
