#pragma once
// Metrics of events in tests.

#include "trainer/events.h"

namespace trainer::testing {

inline reporting::Metric loss(double value) { return {.info = {.name = "loss"}, .value = value}; }
// A fraction, such as top1.
inline reporting::Metric fraction(const std::string& name, double value) {
  return {.info = {.name = name, .higher_is_better = true, .format = reporting::MetricFormat::kPercent}, .value = value};
}
inline reporting::Metric detail(const std::string& name, double value) {
  return {.info = {.name = name, .higher_is_better = true, .is_detail = true}, .value = value};
}

// The loss of an event or a measurement, which must have one.
template <typename Measured>
double loss_of(const Measured& measured) {
  return reporting::value_of(measured.metrics, "loss").value();
}
template <typename Measured>
std::optional<double> value_of(const Measured& measured, const std::string& name) {
  return reporting::value_of(measured.metrics, name);
}
inline std::optional<double> ema_value_of(const auto& event, const std::string& name) {
  return reporting::value_of(event.ema_metrics, name);
}

}  // namespace trainer::testing
