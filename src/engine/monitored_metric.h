#pragma once
// The validation metric that chooses the best checkpoint.

#include "engine/options.h"
#include "trainer/events.h"
#include "trainer/task.h"

namespace trainer::engine {

reporting::MetricInfo monitored_metric(const MonitorOptions& options, const task::Task& task);

}  // namespace trainer::engine
