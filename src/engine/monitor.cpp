#include "engine/monitor.h"

namespace trainer::engine {

Monitor::Monitor(const config::CheckpointSection& section, const task::Task& task) {
  metric_ = section.monitor == "auto" ? task.default_metric() : section.monitor.substr(section.monitor.find('/') + 1);
  const auto metrics = task.metrics().validation;
  const auto info = std::ranges::find(metrics, metric_, &reporting::MetricInfo::name);
  TORCH_CHECK(info != metrics.end(), "the task does not measure ", metric_);
  higher_is_better_ = section.mode == config::MonitorMode::kAuto ? info->higher_is_better : section.mode == config::MonitorMode::kMax;
}

bool Monitor::is_better(const reporting::ValidationEvent& candidate, const reporting::ValidationEvent& best) const {
  const auto mine = reporting::value_of(candidate.metrics, metric_);
  const auto theirs = reporting::value_of(best.metrics, metric_);
  if (!mine || !theirs) return mine.has_value();
  return higher_is_better_ ? *mine > *theirs : *mine < *theirs;
}

}  // namespace trainer::engine
