#include "engine/monitored_metric.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace trainer::engine {

reporting::MetricInfo monitored_metric(const config::CheckpointSection& section, const task::Task& task) {
  const auto name = section.monitor == "auto" ? task.default_metric() : section.monitor.substr(section.monitor.find('/') + 1);
  const auto metrics = task.metrics().validation;
  const auto info = std::ranges::find(metrics, name, &reporting::MetricInfo::name);
  TORCH_CHECK(info != metrics.end(), "the task does not measure ", name);
  auto metric = *info;
  if (section.mode != config::MonitorMode::kAuto) metric.higher_is_better = section.mode == config::MonitorMode::kMax;
  return metric;
}

}  // namespace trainer::engine
