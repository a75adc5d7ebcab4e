#pragma once

#include <cmath>
#include <optional>

namespace trainer {

// Whether `value` is better than `best` by more than `margin`. A value that is not finite is never better. A finite value is better than no
// value and than a value that is not finite.
inline bool is_better(double value, const std::optional<double>& best, bool higher_is_better, double margin = 0) {
  if (!std::isfinite(value)) return false;
  if (!best || !std::isfinite(*best)) return true;
  return higher_is_better ? value > *best + margin : value < *best - margin;
}

}  // namespace trainer
