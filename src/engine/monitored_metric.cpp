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

bool is_better(const reporting::ValidationEvent& candidate, const reporting::ValidationEvent& best, const reporting::MetricInfo& metric) {
  const auto value = reporting::value_of(candidate.metrics, metric.name);
  const auto best_value = reporting::value_of(best.metrics, metric.name);
  if (!value || !best_value) return value.has_value();
  return metric.higher_is_better ? *value > *best_value : *value < *best_value;
}

}  // namespace trainer::engine
