#pragma once

#include <cstdint>

namespace trainer::engine {

// Code that acts on the training at each step: a callback. Sinks (reporting/events.h) report and leave the training alone. A hook is
// called by the training thread of the rank that added it; what it changes on one rank, it has to change on all.
class TrainingHook {
 public:
  virtual ~TrainingHook() = default;
  // `step`: number of steps before this one since the beginning of the run.
  virtual void before_step(int64_t /*step*/) {}
  // The gradients of the step are summed over the ranks, and neither unscaled nor clipped yet.
  virtual void on_gradients(int64_t /*step*/) {}
  // `step`: the same number as before the step. The parameters are updated, and the interval that the step ends is reported.
  virtual void after_step(int64_t /*step*/) {}
};

}  // namespace trainer::engine
