#include "engine/interval_clock.h"

namespace trainer::engine {

void IntervalClock::begin(int64_t step, const Interval& so_far) {
  first_step_ = step;
  start_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(so_far.seconds));
  waited_before_ = batches_.waited().count() - so_far.waited_seconds;
}

void IntervalClock::read(Interval& interval) const {
  interval.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  interval.waited_seconds = batches_.waited().count() - waited_before_;
}

}  // namespace trainer::engine
