#include "distributed/activity.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "base/file.h"

namespace trainer::distributed {

std::string describe(const ActivityState& state) {
  constexpr const char* kNames[] = {"start-up",           "the set-up of NCCL (NCCL_DEBUG=INFO in the environment shows its steps)",
                                    "loading of step {}", "step {}",
                                    "validation",         "checkpoint",
                                    "the end of the run"};
  const auto phase = static_cast<size_t>(state.phase);
  // Another program may have written any number into the store.
  return phase < std::size(kNames) ? fmt::format(fmt::runtime(kNames[phase]), state.step) : "";
}

std::string describe_with_file(const ActivityState& state) {
  return state.file.empty() ? describe(state) : fmt::format("{}, {}", describe(state), state.file);
}

void OwnWork::switch_to(device::Stopwatch* next) {
  pause();
  running = next;
  resume();
}

void Activity::enter(Phase phase, int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    state_.phase = phase;
    state_.step = step;
    ++state_.num_changes;
    if (note_) note_(state_);
  }
  if (!own_work_) return;
  auto* const stopwatch = phase == Phase::kLoading ? &own_work_->data : phase == Phase::kStep ? &own_work_->compute : nullptr;
  own_work_->switch_to(stopwatch);
}

void Activity::begin_exchange() {
  if (own_work_) own_work_->switch_to(nullptr);
}

ActivityState Activity::read() const {
  auto file = current_file_access();
  const std::lock_guard lock(mutex_);
  auto state = state_;
  state.file = std::move(file.text);
  state.num_changes += file.num_changes;
  return state;
}

Activity::Wait::Wait(Activity* activity) : activity_(activity), own_work_(activity != nullptr ? activity->own_work_.get() : nullptr) {
  set(true);
  if (own_work_ != nullptr) own_work_->pause();
}

Activity::Wait::~Wait() {
  set(false);
  try {
    if (own_work_ != nullptr) own_work_->resume();
  } catch (const std::exception&) {
    // A destructor must not throw; the next use of the GPU reports the error.
  }
}

void Activity::Wait::set(bool is_waiting) {
  if (activity_ == nullptr) return;
  const std::lock_guard lock(activity_->mutex_);
  activity_->state_.is_waiting = is_waiting;
}

}  // namespace trainer::distributed
