#pragma once
// Code that is called at each step of the training loop. This header needs no LibTorch.

#include <cstdint>

namespace trainer::engine {

// A callback that may change training at each step. (Sinks, in trainer/events.h, only report.) A hook is called by the training thread of
// the rank that added it. A hook that changes training must make the same change on all ranks.
class TrainingHook {
 public:
  virtual ~TrainingHook() = default;
  // `step`: number of steps before this one since the start of the run.
  virtual void before_step(int64_t /*step*/) {}
  // Whether on_gradients() is to be called in this step; if so, the step does not use a CUDA graph.
  virtual bool needs_gradients(int64_t /*step*/) const { return false; }
  // Called when the gradients of the step are summed over the ranks, but not yet unscaled or clipped.
  virtual void on_gradients(int64_t /*step*/) {}
  // `step`: the same number as in before_step(). The parameters are updated; if the step ends a logging interval, the interval has been
  // reported.
  virtual void after_step(int64_t /*step*/) {}
};

}  // namespace trainer::engine
