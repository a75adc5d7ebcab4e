#include <cmath>
#include <stdexcept>

#include "data/dataset.h"

namespace trainer::data {
namespace {

// Welford's algorithm, which stays accurate if the deviation is small compared to the mean.
void add_values(const std::vector<double>& values, TargetSummary& summary, std::vector<double>& squares) {
  summary.mean.resize(values.size());
  squares.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = values[i] - summary.mean[i];
    summary.mean[i] += difference / static_cast<double>(summary.num_samples);
    squares[i] += difference * (values[i] - summary.mean[i]);
  }
}

}  // namespace

TargetSummary summarize_targets(const Dataset& dataset) {
  const auto& info = dataset.info();
  if (info.has_masks) throw std::logic_error("targets that are masks cannot be summarised");
  TargetSummary summary;
  if (info.num_classes > 0) summary.class_counts.resize(static_cast<size_t>(info.num_classes));
  std::vector<double> squares;
  for (int64_t index = 0; index < dataset.size(); ++index) {
    ++summary.num_samples;
    if (info.has_labels()) {
      const auto label = dataset.label(index);
      // Invalid labels are not counted here, because an error reports them when the sample is read.
      if (refusal_of_label(label, info.num_classes).empty()) ++summary.class_counts[static_cast<size_t>(label)];
      continue;
    }
    const auto values = dataset.target_values(index);
    if (info.is_multi_label) {
      for (size_t label = 0; label < values.size(); ++label) summary.class_counts[label] += values[label] > 0.5 ? 1 : 0;
    } else {
      add_values(values, summary, squares);
    }
  }
  for (const auto square : squares) {
    const double deviation = std::sqrt(square / static_cast<double>(summary.num_samples));
    summary.deviation.push_back(deviation > 0 ? deviation : 1);
  }
  return summary;
}

}  // namespace trainer::data
