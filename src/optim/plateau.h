#pragma once
// The part of a learning-rate schedule that depends on validations: that of torch.optim.lr_scheduler.ReduceLROnPlateau, without its `eps`.

#include <cstdint>
#include <optional>

#include "trainer/state.h"

namespace trainer::optim {

struct PlateauOptions {
  double factor = 0.1;      // what a reduction multiplies the learning rate by
  int64_t patience = 10;    // validations without a better one that are waited for; one more reduces the learning rate
  double threshold = 1e-4;  // how much better a validation must be than the best one
  bool is_relative = true;  // whether `threshold` is a fraction of the best value, or in the metric's unit
  int64_t cooldown = 0;     // validations after a reduction that are not counted
  double min_factor = 0;    // the least factor()
};

class Plateau {
 public:
  explicit Plateau(const PlateauOptions& options) : options_(options) {}

  // For the optimizer's lr: 1 before the first reduction.
  double factor() const { return lr_factor_; }
  // To be called after each validation, on every rank with the same value.
  void observe(double value, bool higher_is_better);

  // observe() calls so far: `last_epoch` of the scheduler in Python.
  int64_t num_observed() const { return num_observed_; }
  // Adds what a state_dict() of ReduceLROnPlateau holds, without `last_epoch` and the options, and the factor.
  void add_state(state::Dict& state) const;
  // `state`: the same with `last_epoch`. That of another schedule is ignored.
  void load_state(const state::View& state);

 private:
  PlateauOptions options_;
  double lr_factor_ = 1;
  std::optional<double> best_;
  int64_t num_bad_ = 0;
  int64_t cooldown_left_ = 0;
  int64_t num_observed_ = 0;
};

}  // namespace trainer::optim
