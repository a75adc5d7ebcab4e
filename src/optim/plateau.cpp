#include "optim/plateau.h"

#include <algorithm>

#include "base/metric_order.h"

namespace trainer::optim {

void Plateau::observe(double value, bool higher_is_better) {
  ++num_observed_;
  const double margin = options_.is_relative ? best_.value_or(0) * options_.threshold : options_.threshold;
  if (is_better(value, best_, higher_is_better, margin)) {
    best_ = value;
    num_bad_ = 0;
  } else {
    ++num_bad_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    num_bad_ = 0;
  }
  if (num_bad_ <= options_.patience) return;
  lr_factor_ = std::min(lr_factor_, std::max(lr_factor_ * options_.factor, options_.min_factor));
  cooldown_left_ = options_.cooldown;
  num_bad_ = 0;
}

void Plateau::add_state(state::Dict& state) const {
  // Without a value, Python keeps its own: the worst number.
  if (best_) state.add("best", *best_);
  state.add("num_bad_epochs", num_bad_);
  state.add("cooldown_counter", cooldown_left_);
  state.add("lr_factor", lr_factor_);
}

void Plateau::load_state(const state::View& state) {
  if (!state.find("lr_factor")) return;
  const auto best = state.find("best");
  best_ = best ? std::optional(best->number()) : std::nullopt;
  num_bad_ = state.at("num_bad_epochs").integer();
  cooldown_left_ = state.at("cooldown_counter").integer();
  lr_factor_ = state.at("lr_factor").number();
  num_observed_ = state.at("last_epoch").integer();
}

}  // namespace trainer::optim
