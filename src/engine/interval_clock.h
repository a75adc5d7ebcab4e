#pragma once

#include <chrono>

#include "engine/run_state.h"
#include "input/data_loader.h"

namespace trainer::engine {

// Times the open logging interval, and the part of it that training waited for the loader.
class IntervalClock {
 public:
  // `loader` must outlive it.
  explicit IntervalClock(const input::DataLoader& loader) : loader_(loader) {}

  // An interval begins before step number `step`; `so_far`: what it had taken before the run was resumed.
  void begin(int64_t step, const Interval& so_far = {});
  // Whether a step was taken since, `next_step` being the next one.
  bool has_steps(int64_t next_step) const { return next_step > first_step_; }
  // Fills the durations of `interval`.
  void read(Interval& interval) const;

 private:
  using Clock = std::chrono::steady_clock;

  const input::DataLoader& loader_;
  int64_t first_step_ = 0;
  Clock::time_point start_;
  double waited_before_ = 0;  // by the loader's count, in seconds
};

}  // namespace trainer::engine
