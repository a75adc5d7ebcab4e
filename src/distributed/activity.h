#pragma once
// What a rank is doing, for the threads that monitor it, and its own work: the time in which it works on a step without waiting for other
// ranks, which alone distinguishes a slow rank from the ranks that wait for it.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "device/stopwatch.h"

namespace trainer::distributed {

enum class Phase { kStartUp, kConnect, kLoading, kStep, kValidation, kCheckpoint, kEnd };

struct ActivityState {
  Phase phase = Phase::kStartUp;
  int64_t step = 0;          // of kLoading and kStep
  bool is_waiting = false;   // for other ranks
  uint64_t num_changes = 0;  // grows with each call of enter(), and when the file changes
  std::string file = {};     // "reading FILE": the file that the rank's main thread is using; empty if none
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ActivityState, phase, step, is_waiting, num_changes, file)

// "start-up", "the set-up of NCCL (…)", "loading of step 12", "step 12", "validation", "checkpoint".
std::string describe(const ActivityState& state);
// "start-up, reading FILE"
std::string describe_with_file(const ActivityState& state);

struct OwnSeconds {
  double data = 0;     // time spent waiting for the data loader
  double compute = 0;  // from receiving the batch until the first gradient bucket is ready; the whole micro-step if no bucket is sent
  double total() const { return data + compute; }
};

// Measures own work. Used by one thread at a time: the training thread, or autograd's thread while the training thread waits for it.
struct OwnWork {
  explicit OwnWork(torch::Device device) : data(device), compute(device) {}

  // Ends the measurement in progress; `next` may be null.
  void switch_to(device::Stopwatch* next);
  // The time between pause() and resume() is not own work.
  void pause() const {
    if (running != nullptr) running->stop();
  }
  void resume() const {
    if (running != nullptr) running->start();
  }

  device::Stopwatch data;
  device::Stopwatch compute;
  device::Stopwatch* running = nullptr;
};

class Activity {
 public:
  // `note`: called by each enter(), on the calling thread, with the new state.
  explicit Activity(std::function<void(const ActivityState&)> note = {}) : note_(std::move(note)) {}

  // Begins a phase, or the next part of the current phase.
  void enter(Phase phase, int64_t step = 0);
  ActivityState read() const;

  // Like enter(), the next three functions must be called by the thread that does the work, which may be autograd's during backward. From
  // time_own_work() on, kLoading counts as waiting for data, and kStep counts as computing until begin_exchange().
  void time_own_work(torch::Device device) { own_work_ = std::make_unique<OwnWork>(device); }
  // Call when the first gradients are ready to be sent to the other ranks.
  void begin_exchange();
  // Own work since the previous call, or since time_own_work(), which must have been called. Waits for the GPU.
  OwnSeconds read_own_work() { return {.data = own_work_->data.read(), .compute = own_work_->compute.read()}; }

  // While an object of this class exists, the rank counts as waiting for other ranks, and no own work is measured.
  class Wait {
   public:
    explicit Wait(Activity* activity);  // does nothing if null
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    void set(bool is_waiting);
    Activity* activity_;
    OwnWork* own_work_;  // may be null
  };

 private:
  mutable std::mutex mutex_;
  ActivityState state_;
  std::function<void(const ActivityState&)> note_;
  // Not guarded by the mutex, because recording time on a GPU that hangs may block.
  std::unique_ptr<OwnWork> own_work_;
};

}  // namespace trainer::distributed
