#pragma once
// Learning-rate schedules. They are pure functions of the step and have no state, except reduce_on_plateau, which also depends on
// validations (Plateau). Their values are those of torch.optim.lr_scheduler, stepped once per update. With W steps of warm-up:
//   - warm-up (LinearLR): at step s < W, warmup_start_factor + (1 - warmup_start_factor) * s / W, so that the first update uses the
//     start factor and update W uses the schedule's first value;
//   - cosine, linear, polynomial (CosineAnnealingLR, LinearLR, PolynomialLR): cover the steps from W and reach their final factor at
//     step total_steps, which is one past the last update;
//   - onecycle (OneCycleLR, cosine): has its own warm-up, and reaches its final factor at the last update, total_steps - 1;
//   - step, multistep (StepLR, MultiStepLR): count epochs from the start of training, also with a warm-up. Step s is at
//     s / steps_per_epoch epochs.
// From total_steps on, a schedule keeps its final value.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/keys.h"
#include "trainer/optim.h"
#include "trainer/options.h"
#include "trainer/state.h"

namespace trainer::optim {

// The part of a learning-rate schedule that depends on validations: torch.optim.lr_scheduler.ReduceLROnPlateau without its `eps`.

struct PlateauOptions {
  double factor = 0.1;      // by which a reduction multiplies the learning rate
  int64_t patience = 10;    // consecutive validations without improvement that are tolerated; one more reduces the learning rate
  double threshold = 1e-4;  // minimum improvement over the best validation
  bool is_relative = true;  // whether `threshold` is a fraction of the best value, or in the metric's unit
  int64_t cooldown = 0;     // number of validations after a reduction that are not counted
  double min_factor = 0;    // lower limit of factor()

  void describe(KeyTable& keys);
};

class Plateau {
 public:
  explicit Plateau(const PlateauOptions& options) : options_(options) {}

  // The factor for the optimizer's lr; 1 before the first reduction.
  double factor() const { return lr_factor_; }
  // To be called after each validation with the same value on every rank.
  void observe(double value, bool higher_is_better);

  // The number of observe() calls so far: `last_epoch` of the scheduler in Python.
  int64_t num_observed() const { return num_observed_; }
  // Adds the factor, and the entries of ReduceLROnPlateau's state_dict() except `last_epoch` and the options.
  void add_state(state::Dict& state) const;
  // `state`: the entries of add_state(), and `last_epoch`. The state of another schedule is ignored.
  void load_state(const state::View& state);

 private:
  PlateauOptions options_;
  double lr_factor_ = 1;
  std::optional<double> best_;
  int64_t num_bad_ = 0;
  int64_t cooldown_left_ = 0;
  int64_t num_observed_ = 0;
};

// All values are factors for the optimizer's lr.
struct LrSchedule {
  std::function<double(int64_t step)> factor;  // at update number `step`, from 0
  // The entries of each parameter group besides "lr" that the scheduler of torch.optim.lr_scheduler needs to continue: "initial_lr", and
  // for onecycle "max_lr" and "min_lr" too.
  std::vector<std::pair<std::string, double>> group_factors;
  std::optional<Plateau> plateau = {};

  double operator()(int64_t step) const { return factor(step) * (plateau ? plateau->factor() : 1); }
};

// What a schedule of the registry requires of a run.
struct LrScheduleTraits {
  bool has_own_warmup = false;  // if so, it cannot be combined with lr_scheduler.warmup_*
  bool needs_validations = false;
  double last_drop = 0;  // epoch of the last drop; 0: there are no drops, or no last one
};
LrScheduleTraits traits_of(const ComponentConfig& schedule);

// `schedule` must be from the registry; `total_steps` and `steps_per_epoch` are at least 1. Throws OptionError when the warm-up is not
// shorter than the training.
LrSchedule make_lr_schedule(const ComponentConfig& schedule, const WarmupOptions& warmup, int64_t total_steps, int64_t steps_per_epoch);

}  // namespace trainer::optim
