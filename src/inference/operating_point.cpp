#include "inference/operating_point.h"

#include <algorithm>
#include <cmath>

#include "inference/description.h"

namespace trainer::inference {

Decision decide(const OperatingPoint& point, std::span<const double> probabilities) {
  const auto& threshold = point.threshold;
  // The outputs of the network can be NaN or infinite.
  if (!std::ranges::all_of(probabilities, [](double value) { return std::isfinite(value); })) return {0, true};
  if (threshold && probabilities[static_cast<size_t>(threshold->label)] >= threshold->probability) return {threshold->label, false};
  int64_t best = -1;
  for (int64_t label = 0; label < static_cast<int64_t>(probabilities.size()); ++label) {
    if (threshold && threshold->label == label) continue;
    if (best < 0 || probabilities[static_cast<size_t>(label)] > probabilities[static_cast<size_t>(best)]) best = label;
  }
  return {best, probabilities[static_cast<size_t>(best)] < point.reject_below};
}

const char* operating_point_key(bool averaged) { return averaged ? "operating_point_ema" : "operating_point"; }

state::Dict tree_of(const OperatingPoint& point) {
  state::Dict tree;
  tree.add("temperature", point.temperature);
  tree.add("reject_below", point.reject_below);
  if (point.threshold) {
    tree.add("label", point.threshold->label);
    tree.add("probability", point.threshold->probability);
  }
  return tree;
}

AnswerKind answer_kind(const data::DatasetInfo& samples) {
  return samples.is_multi_label ? AnswerKind::kClasses : samples.num_classes == 0 ? AnswerKind::kNumbers : AnswerKind::kClass;
}

namespace {

void read_calibration(const state::View& stored, int64_t num_classes, OperatingPoint& point) {
  point.temperature = stored.at("temperature").number();
  point.reject_below = stored.at("reject_below").number();
  if (stored.find("label")) {
    point.threshold = OperatingPoint::Threshold{.label = stored.at("label").integer(), .probability = stored.at("probability").number()};
  }
  const auto is_part = [](double value) { return value >= 0 && value <= 1; };
  // Wider than the limits of `trainer calibrate`; beyond these, the outputs divided by the temperature could be infinite.
  constexpr double kLeastTemperature = 1e-6;
  constexpr double kMostTemperature = 1e6;
  const bool is_usable = point.temperature >= kLeastTemperature && point.temperature <= kMostTemperature && is_part(point.reject_below) &&
                         (!point.threshold || (is_part(point.threshold->probability) && point.threshold->label >= 0 &&
                                               point.threshold->label < num_classes && num_classes > 1));
  if (!is_usable) stored.fail("its values are not valid values of `trainer calibrate`; calibrate the checkpoint again");
}

std::vector<double> read_numbers(const state::View& stored, int64_t count, double greater_than = kAnyFinite) {
  std::vector<double> numbers;
  for (const auto& number : stored.elements()) numbers.push_back(read_finite(number, greater_than));
  if (static_cast<int64_t>(numbers.size()) != count) {
    stored.fail("has " + std::to_string(numbers.size()) + " numbers, but the network has " + std::to_string(count) + " outputs");
  }
  return numbers;
}

void read_thresholds(const state::View& file, bool averaged, int64_t num_classes, OperatingPoint& point) {
  constexpr double kDefault = 0.5;
  point.thresholds.assign(static_cast<size_t>(num_classes), kDefault);
  const auto validation = file.find("last_validation");
  if (!validation || validation->is_none()) return;
  if (const auto stored = validation->find(averaged ? "ema_thresholds" : "thresholds"))
    point.thresholds = read_numbers(*stored, num_classes);
}

}  // namespace

OperatingPoint read_operating_point(const state::Tree& tree, const std::string& source, bool averaged, const data::DatasetInfo& samples) {
  const state::View file(tree, source);
  OperatingPoint point{.kind = answer_kind(samples)};
  if (point.kind == AnswerKind::kClasses) {
    read_thresholds(file, averaged, samples.num_classes, point);
  } else if (point.kind == AnswerKind::kNumbers) {
    if (const auto summary = file.find("target_summary")) {
      point.mean = read_numbers(summary->at("mean"), samples.num_targets);
      point.deviation = read_numbers(summary->at("deviation"), samples.num_targets, /*greater_than=*/0);
    }
  } else if (const auto stored = file.find(operating_point_key(averaged))) {
    read_calibration(*stored, samples.num_classes, point);
  }
  return point;
}

torch::Tensor answers_of(const OperatingPoint& point, const torch::Tensor& outputs) {
  const auto wide = outputs.to(torch::kFloat64);
  switch (point.kind) {
    case AnswerKind::kClass:
      return (wide / point.temperature).softmax(1);
    case AnswerKind::kClasses:
      return wide.sigmoid();
    case AnswerKind::kNumbers:
      break;
  }
  if (point.deviation.empty()) return wide;
  const auto on_device = [&](const std::vector<double>& values) { return torch::tensor(values, torch::kFloat64).to(wide.device()); };
  return wide * on_device(point.deviation) + on_device(point.mean);
}

}  // namespace trainer::inference
