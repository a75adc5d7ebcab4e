#include "engine/early_stopping.h"

#include "base/metric_order.h"

namespace trainer::engine {

void EarlyStopping::observe(double value, bool higher_is_better, double min_delta) {
  const bool improves = is_better(value, best, higher_is_better, min_delta);
  if (improves) best = value;
  num_not_better = improves ? 0 : num_not_better + 1;
}

bool EarlyStopping::is_over(const std::optional<EarlyStoppingOptions>& options) const {
  return options && num_not_better >= options->patience;
}

state::Dict tree_of(const EarlyStopping& early_stopping) {
  state::Dict dict;
  dict.add("best", early_stopping.best ? state::Tree(*early_stopping.best) : state::Tree());
  dict.add("num_not_better", early_stopping.num_not_better);
  return dict;
}

EarlyStopping read_early_stopping(const state::View& view) {
  EarlyStopping early_stopping{.num_not_better = view.at("num_not_better").integer()};
  if (const auto best = view.at("best"); !best.is_none()) early_stopping.best = best.number();
  return early_stopping;
}

}  // namespace trainer::engine
