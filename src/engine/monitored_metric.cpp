#include "engine/monitored_metric.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace trainer::engine {

reporting::MetricInfo monitored_metric(const MonitorOptions& options, const task::Task& task) {
  const auto name = options.metric == "auto" ? task.default_metric() : options.metric.substr(options.metric.find('/') + 1);
  const auto metrics = task.metrics().validation;
  const auto info = std::ranges::find(metrics, name, &reporting::MetricInfo::name);
  TORCH_CHECK(info != metrics.end(), "the task does not measure ", name);
  auto metric = *info;
  if (options.mode != MonitorMode::kAuto) metric.higher_is_better = options.mode == MonitorMode::kMax;
  return metric;
}

}  // namespace trainer::engine
