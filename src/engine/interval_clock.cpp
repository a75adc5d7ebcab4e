#include "engine/interval_clock.h"

namespace trainer::engine {

void IntervalClock::begin(int64_t step, const Interval& so_far) {
  first_step_ = step;
  start_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(so_far.seconds));
  before_ = batches_.counts();
  before_.waited -= std::chrono::duration<double>(so_far.waited_seconds);
}

void IntervalClock::read(Interval& interval) const {
  interval.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  interval.waited_seconds = (batches_.counts().waited - before_.waited).count();
}

double IntervalClock::queue_depth() const {
  const auto counts = batches_.counts();
  const auto num_batches = counts.num_batches - before_.num_batches;
  return num_batches == 0 ? 0 : static_cast<double>(counts.num_ready - before_.num_ready) / static_cast<double>(num_batches);
}

}  // namespace trainer::engine
