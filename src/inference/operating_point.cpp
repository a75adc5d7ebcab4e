#include "inference/operating_point.h"

#include <algorithm>
#include <cmath>

namespace trainer::inference {

Decision decide(const OperatingPoint& point, std::span<const double> probabilities) {
  const auto& threshold = point.threshold;
  // Of a network whose outputs are not finite.
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

OperatingPoint read_operating_point(const state::Tree& file, const std::string& source, bool averaged, int64_t num_classes) {
  const auto stored = state::View(file, source).find(operating_point_key(averaged));
  if (!stored) return {};
  OperatingPoint point{.temperature = stored->at("temperature").number(), .reject_below = stored->at("reject_below").number()};
  if (stored->find("label")) {
    point.threshold = OperatingPoint::Threshold{.label = stored->at("label").integer(), .probability = stored->at("probability").number()};
  }
  const auto is_part = [](double value) { return value >= 0 && value <= 1; };
  const bool is_usable = std::isfinite(point.temperature) && point.temperature > 0 && is_part(point.reject_below) &&
                         (!point.threshold || (is_part(point.threshold->probability) && point.threshold->label >= 0 &&
                                               point.threshold->label < num_classes && num_classes > 1));
  if (!is_usable) stored->fail("its values are not those that `trainer calibrate` stores; calibrate the checkpoint again");
  return point;
}

}  // namespace trainer::inference
