#pragma once

#include <cstdint>
#include <optional>

#include "engine/options.h"
#include "trainer/state.h"

namespace trainer::engine {

// How many validations in a row were not better than the best one: what training.early_stopping needs to know. The rule is that of
// Lightning's EarlyStopping.
struct EarlyStopping {
  std::optional<double> best = {};
  int64_t num_not_better = 0;

  // To be called after each validation with the value of the metric.
  void observe(double value, bool higher_is_better, double min_delta);
  bool is_over(const std::optional<EarlyStoppingOptions>& options) const;
};

state::Dict tree_of(const EarlyStopping& early_stopping);
EarlyStopping read_early_stopping(const state::View& view);

}  // namespace trainer::engine
