#pragma once
// Learning-rate schedules as pure functions of the step, so that they have no state to save. Values are those of
// torch.optim.lr_scheduler, stepped once per update. With W steps of warm-up:
//   - warm-up (LinearLR): at step s < W warmup_start_factor + (1 - warmup_start_factor) * s / W, so that the first update uses the
//     start factor and update W the schedule's first value;
//   - cosine, linear, polynomial (CosineAnnealingLR, LinearLR, PolynomialLR): cover the steps from W and reach their final factor at
//     step total_steps, which is one past the last update;
//   - onecycle (OneCycleLR, cosine): has its own warm-up, and reaches its final factor with the last update, total_steps - 1;
//   - step, multistep (StepLR, MultiStepLR): count epochs from the beginning of training, also with a warm-up. Step s is
//     at epoch s / steps_per_epoch.
// From total_steps on, a schedule keeps its last value.

#include <cstdint>
#include <functional>

#include "config/sections/optimization.h"

namespace trainer::optim {

// Factor on the optimizer's lr for the update number `step` (from 0).
using LrSchedule = std::function<double(int64_t step)>;

const config::RegistryBase& lr_scheduler_registry();

// `section.component` comes from lr_scheduler_registry(); `total_steps` and `steps_per_epoch` are at least 1. Throws UsageError when
// the warm-up is not shorter than the training, is given twice or is combined with onecycle, and when milestones do not increase.
LrSchedule make_lr_schedule(const config::LrSchedulerSection& section, int64_t total_steps, int64_t steps_per_epoch);

}  // namespace trainer::optim
