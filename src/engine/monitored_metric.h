#pragma once
// The validation metric that chooses the best checkpoint.

#include "engine/options.h"
#include "reporting/metric.h"
#include "task/task.h"

namespace trainer::engine {

reporting::MetricInfo monitored_metric(const MonitorOptions& options, const task::Task& task);

}  // namespace trainer::engine
