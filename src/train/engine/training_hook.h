#pragma once

#include <cstdint>

namespace trainer::engine {

// A callback: code that acts on the training at each step. (Sinks, in trainer/events.h, only report.) A hook is called by the training
// thread of the rank that added it. A change that it makes on one rank, it must make on all ranks.
class TrainingHook {
 public:
  virtual ~TrainingHook() = default;
  // `step`: number of steps before this one since the start of the run.
  virtual void before_step(int64_t /*step*/) {}
  // The gradients of the step are summed over the ranks, and neither unscaled nor clipped yet.
  virtual void on_gradients(int64_t /*step*/) {}
  // `step`: the same number as in before_step(). The parameters are updated; if the step ends a logging interval, that is reported.
  virtual void after_step(int64_t /*step*/) {}
};

}  // namespace trainer::engine
