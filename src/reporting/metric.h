#pragma once
// A metric as data: the values that tasks (task/task.h) measure, and all that a sink needs to write them.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::reporting {

enum class MetricFormat { kNumber, kPercent };

struct MetricInfo {
  std::string name;  // "loss"
  bool higher_is_better = false;
  MetricFormat format = MetricFormat::kNumber;  // on the console; files hold the value itself
  // A detail is written to metrics.jsonl, metrics.csv and summary.json only, and is not measured with the averaged parameters.
  bool is_detail = false;
};

struct Metric {
  MetricInfo info;
  double value = 0;
};

// In the order in which they are written.
using Metrics = std::vector<Metric>;

// The result of a validation for the samples of one class.
struct ClassMetrics {
  Metrics metrics;
  int64_t num_samples = 0;
};

// The metrics that have a column in tables and checkpoints.
struct MetricColumns {
  std::vector<MetricInfo> train;
  std::vector<MetricInfo> validation;
};

inline const Metric* find_metric(const Metrics& metrics, std::string_view name) {
  const auto found = std::ranges::find(metrics, name, [](const Metric& metric) -> const std::string& { return metric.info.name; });
  return found == metrics.end() ? nullptr : &*found;
}

inline std::optional<double> value_of(const Metrics& metrics, std::string_view name) {
  const auto* metric = find_metric(metrics, name);
  return metric == nullptr ? std::nullopt : std::optional(metric->value);
}

}  // namespace trainer::reporting
