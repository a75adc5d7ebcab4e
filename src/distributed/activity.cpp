#include "distributed/activity.h"

#include <fmt/format.h>

namespace trainer::distributed {

std::string describe(const ActivityState& state) {
  switch (state.phase) {
    case Phase::kStartUp:
      return "start-up";
    case Phase::kLoading:
      return fmt::format("loading of step {}", state.step);
    case Phase::kStep:
      return fmt::format("step {}", state.step);
    case Phase::kValidation:
      return "validation";
    case Phase::kEnd:
      return "the end of the run";
  }
  return "";
}

Activity::Activity(std::function<void(const ActivityState&)> note) : note_(std::move(note)) {}

void Activity::enter(Phase phase, int64_t step) {
  const std::lock_guard lock(mutex_);
  state_.phase = phase;
  state_.step = step;
  ++state_.num_changes;
  if (note_) note_(state_);
}

ActivityState Activity::read() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

Activity::Wait::Wait(Activity* activity) : activity_(activity) { set(true); }
Activity::Wait::~Wait() { set(false); }

void Activity::Wait::set(bool is_waiting) {
  if (activity_ == nullptr) return;
  const std::lock_guard lock(activity_->mutex_);
  activity_->state_.is_waiting = is_waiting;
}

}  // namespace trainer::distributed
