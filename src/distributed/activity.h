#pragma once
// What a rank is doing, written by the thread that does it and read by those that watch over it.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace trainer::distributed {

enum class Phase { kStartUp, kLoading, kStep, kValidation, kEnd };

struct ActivityState {
  Phase phase = Phase::kStartUp;
  int64_t step = 0;          // of kLoading and kStep
  bool is_waiting = false;   // for other ranks
  uint64_t num_changes = 0;  // how often a phase has begun or gone on
};

// "start-up", "loading of step 12", "step 12", "validation", "end".
std::string describe(const ActivityState& state);

class Activity {
 public:
  // `note` is called at each beginning, by the thread that enters.
  explicit Activity(std::function<void(const ActivityState&)> note = {});

  // A phase begins, or goes on with its next part.
  void enter(Phase phase, int64_t step = 0);
  ActivityState read() const;

  // As long as it lives, the rank waits for others.
  class Wait {
   public:
    explicit Wait(Activity* activity);  // null: nobody watches
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    void set(bool is_waiting);
    Activity* activity_;
  };

 private:
  mutable std::mutex mutex_;
  ActivityState state_;
  std::function<void(const ActivityState&)> note_;
};

}  // namespace trainer::distributed
