#include "inspection/allocation_trace.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cmath>

namespace trainer::inspection {

int64_t Allocations::at_mark() const {
  int64_t in_use = 0;
  for (size_t i = 0; i < num_before_mark; ++i) in_use += changes[i];
  return in_use;
}

int64_t Allocations::at_end() const {
  int64_t in_use = 0;
  for (const int64_t change : changes) in_use += change;
  return in_use;
}

int64_t Allocations::peak() const {
  int64_t in_use = 0;
  int64_t peak = 0;
  for (const int64_t change : changes) {
    in_use += change;
    peak = std::max(peak, in_use);
  }
  return peak;
}

class AllocationTrace::Recorder : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*memory*/, int64_t size, size_t /*total_allocated*/, size_t /*total_reserved*/,
                         c10::Device device) override {
    if (device.is_cpu()) allocations.changes.push_back(size);
  }
  bool memoryProfilingEnabled() const override { return true; }

  Allocations allocations;
};

AllocationTrace::AllocationTrace() : recorder_(std::make_shared<Recorder>()), guard_(c10::DebugInfoKind::PROFILER_STATE, recorder_) {}
AllocationTrace::~AllocationTrace() = default;

void AllocationTrace::mark() { recorder_->allocations.num_before_mark = recorder_->allocations.changes.size(); }

const Allocations& AllocationTrace::result() const { return recorder_->allocations; }

Allocations extrapolate(const Allocations& small, int64_t small_size, const Allocations& large, int64_t large_size, int64_t size) {
  const auto at_size = [&](int64_t small_value, int64_t large_value) {
    const auto slope = static_cast<double>(large_value - small_value) / static_cast<double>(large_size - small_size);
    return small_value + static_cast<int64_t>(std::llround(slope * static_cast<double>(size - small_size)));
  };
  Allocations result;
  const auto is_same = [](int64_t a, int64_t b) { return (a < 0) == (b < 0); };
  if (small.num_before_mark != large.num_before_mark || !std::ranges::equal(small.changes, large.changes, is_same)) {
    const int64_t at_mark = at_size(small.at_mark(), large.at_mark());
    const int64_t peak = std::max<int64_t>(at_mark, at_size(small.peak(), large.peak()));
    result.changes = {at_mark, peak - at_mark};
    result.num_before_mark = 1;
    return result;
  }
  for (size_t i = 0; i < small.changes.size(); ++i) result.changes.push_back(at_size(small.changes[i], large.changes[i]));
  result.num_before_mark = small.num_before_mark;
  return result;
}

}  // namespace trainer::inspection
