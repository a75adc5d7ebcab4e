#pragma once
// Learning-rate schedules as pure functions of the step, so that they have no state to save or to step; only reduce_on_plateau also depends
// on validations (plateau.h). Values are those of torch.optim.lr_scheduler, stepped once per update. With W steps of warm-up:
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
#include <string>
#include <utility>
#include <vector>

#include "optim/options.h"
#include "optim/plateau.h"
#include "trainer/keys.h"

namespace trainer::optim {

// All values are factors for the optimizer's lr.
struct LrSchedule {
  std::function<double(int64_t step)> factor;  // at update number `step`, from 0
  // What the scheduler of torch.optim.lr_scheduler keeps in each group of parameters beside "lr", and needs to continue: "initial_lr",
  // and of onecycle "max_lr" and "min_lr" too.
  std::vector<std::pair<std::string, double>> group_factors;
  std::optional<Plateau> plateau = {};

  double operator()(int64_t step) const { return factor(step) * (plateau ? plateau->factor() : 1); }
};

const RegistryBase& lr_scheduler_registry();

// What a schedule of the registry needs of a run.
struct LrScheduleTraits {
  bool has_own_warmup = false;  // it cannot be combined with another one
  bool needs_validations = false;
  double last_drop = 0;  // in epochs; 0: it has none
};
LrScheduleTraits traits_of(const ComponentConfig& schedule);

// `schedule` must be from the registry; `total_steps` and `steps_per_epoch` are at least 1. Throws OptionError when the warm-up is not
// shorter than the training.
LrSchedule make_lr_schedule(const ComponentConfig& schedule, const WarmupOptions& warmup, int64_t total_steps, int64_t steps_per_epoch);

}  // namespace trainer::optim
