#pragma once
// The validation metric that chooses the best checkpoint.

#include "engine/options.h"
#include "task/task.h"
#include "trainer/events.h"

namespace trainer::engine {

reporting::MetricInfo monitored_metric(const MonitorOptions& options, const task::Task& task);

}  // namespace trainer::engine
