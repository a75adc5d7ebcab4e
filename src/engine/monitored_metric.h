#pragma once
// The validation metric that chooses the best checkpoint.

#include "config/sections/checkpoint.h"
#include "reporting/events.h"
#include "task/task.h"

namespace trainer::engine {

reporting::MetricInfo monitored_metric(const config::CheckpointSection& section, const task::Task& task);

// A validation with the metric is better than one without it, which a checkpoint of an earlier version may hold.
bool is_better(const reporting::ValidationEvent& candidate, const reporting::ValidationEvent& best, const reporting::MetricInfo& metric);

}  // namespace trainer::engine
