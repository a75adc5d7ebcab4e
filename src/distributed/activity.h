#pragma once
// What a rank is doing, written by the thread that does it and read by those that watch over it; and how long it works by itself.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "distributed/own_work.h"

namespace trainer::distributed {

enum class Phase { kStartUp, kLoading, kStep, kValidation, kCheckpoint, kEnd };

struct ActivityState {
  Phase phase = Phase::kStartUp;
  int64_t step = 0;          // of kLoading and kStep
  bool is_waiting = false;   // for other ranks
  uint64_t num_changes = 0;  // how often a phase has begun or gone on
};

// "start-up", "loading of step 12", "step 12", "validation", "checkpoint".
std::string describe(const ActivityState& state);

class Activity {
 public:
  // `note` is called at each beginning, by the thread that enters.
  explicit Activity(std::function<void(const ActivityState&)> note = {});

  // A phase begins, or goes on with its next part.
  void enter(Phase phase, int64_t step = 0);
  ActivityState read() const;

  // These are called by the thread that works, as enter() is. From now on own work is timed, on `device`: kLoading is waiting for data,
  // kStep is computing until begin_exchange().
  void time_own_work(torch::Device device) { own_work_ = std::make_unique<OwnWork>(device); }
  // The first gradients are ready for the other ranks.
  void begin_exchange();
  // Own work since the last call; time_own_work() came first.
  OwnSeconds read_own_work() { return own_work_->read(); }

  // As long as it lives, the rank waits for others.
  class Wait {
   public:
    explicit Wait(Activity* activity);  // null: nobody watches
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    void set(bool is_waiting);
    OwnWork* own_work() const { return activity_ != nullptr ? activity_->own_work_.get() : nullptr; }
    Activity* activity_;
  };

 private:
  mutable std::mutex mutex_;
  ActivityState state_;
  std::function<void(const ActivityState&)> note_;
  std::unique_ptr<OwnWork> own_work_;  // not under the mutex: a GPU that hangs may hold up who records its time
};

}  // namespace trainer::distributed
