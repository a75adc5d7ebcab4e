#include "run/evaluation/decisions.h"

#include <algorithm>
#include <cmath>

namespace trainer::evaluation {
namespace {

// The fraction of hits and its Wilson interval ("Probable Inference", 1927), which is also valid for small counts and for no hits.
std::optional<Measured> part_of(double hits, double count) {
  if (count == 0) return std::nullopt;
  constexpr double kQuantile = 1.959963984540054;  // the 97.5 % quantile of the normal distribution
  const double part = hits / count;
  const double square = kQuantile * kQuantile / count;
  const double middle = (part + square / 2) / (1 + square);
  const double reach = std::sqrt(part * (1 - part) * square + square * square / 4) / (1 + square);
  return Measured{part, std::max(middle - reach, 0.0), std::min(middle + reach, 1.0)};
}

enum Counted : int64_t { kRight, kRejected, kMissed, kFalseAlarms, kNumParts };

}  // namespace

DecisionMeter::DecisionMeter(const inference::OperatingPoint& point)
    : point_(point), counts_(torch::zeros({kNumParts, 2}, torch::kInt64)) {}

void DecisionMeter::add(const torch::Tensor& probabilities, const torch::Tensor& labels) {
  const auto rows = probabilities.contiguous();
  const auto num_classes = static_cast<size_t>(rows.size(1));
  auto counts = counts_.accessor<int64_t, 2>();
  const auto count = [&](Counted kind, bool is_hit) {
    counts[kind][0] += is_hit ? 1 : 0;
    ++counts[kind][1];
  };
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const auto decision = inference::decide(point_, {rows[i].const_data_ptr<double>(), num_classes});
    const auto label = labels[i].item<int64_t>();
    if (!decision.is_rejected) count(kRight, decision.label == label);
    count(kRejected, decision.is_rejected);
    if (!point_.threshold) continue;
    const bool is_decided = !decision.is_rejected && decision.label == point_.threshold->label;
    if (label == point_.threshold->label) {
      count(kMissed, !is_decided);
    } else {
      count(kFalseAlarms, is_decided);
    }
  }
}

void DecisionMeter::reduce(const distributed::ProcessGroup& group) { group.all_reduce(counts_); }

DecisionResult DecisionMeter::result() const {
  const auto counts = counts_.accessor<int64_t, 2>();
  const auto part = [&](Counted which) { return part_of(static_cast<double>(counts[which][0]), static_cast<double>(counts[which][1])); };
  return {.accuracy = part(kRight), .rejected = part(kRejected), .misses = part(kMissed), .false_alarms = part(kFalseAlarms)};
}

}  // namespace trainer::evaluation
