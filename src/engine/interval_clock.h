#pragma once

#include <chrono>

#include "engine/batch_source.h"
#include "engine/run_state.h"

namespace trainer::engine {

// Times the open logging interval, and how long training waited for batches in it.
class IntervalClock {
 public:
  // `batches` must outlive it.
  explicit IntervalClock(const BatchSource& batches) : batches_(batches) {}

  // Starts an interval at step number `step`; `so_far`: its durations before the run was resumed.
  void begin(int64_t step, const Interval& so_far = {});
  // Whether the interval has a step before `next_step`.
  bool has_steps(int64_t next_step) const { return next_step > first_step_; }
  // Sets the durations of `interval`.
  void read(Interval& interval) const;
  // How many batches were ready when one was taken: the mean since begin().
  double queue_depth() const;

 private:
  using Clock = std::chrono::steady_clock;

  const BatchSource& batches_;
  int64_t first_step_ = 0;
  Clock::time_point start_;
  data::LoaderCounts before_;  // as counted by the source; the time is that before the interval began, perhaps in an earlier process
};

}  // namespace trainer::engine
