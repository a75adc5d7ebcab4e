#pragma once
// Records what a rank is doing; written by the thread that does the work and read by the threads that monitor the rank. Also measures the
// rank's own work: the time in which it works on a step without waiting for other ranks. All ranks that exchange gradients take the same
// time for a step, so only own work distinguishes a slow rank from the ranks that wait for it.

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
class OwnWork {
 public:
  explicit OwnWork(torch::Device device) : data_(device), compute_(device) {}

  // Each call ends the measurement in progress.
  void begin_data() { switch_to(&data_); }
  void begin_compute() { switch_to(&compute_); }
  void end() { switch_to(nullptr); }
  // The time between pause() and resume() is not own work.
  void pause();
  void resume();

  // Own work since the last call. On a GPU, waits until the last measured work has finished.
  OwnSeconds read() { return {.data = data_.read(), .compute = compute_.read()}; }

 private:
  void switch_to(device::Stopwatch* next);

  device::Stopwatch data_;
  device::Stopwatch compute_;
  device::Stopwatch* running_ = nullptr;
};

class Activity {
 public:
  // `note`: called by each enter(), on the calling thread, with the new state.
  explicit Activity(std::function<void(const ActivityState&)> note = {}) : note_(std::move(note)) {}

  // Begins a phase, or the next part of the current phase.
  void enter(Phase phase, int64_t step = 0);
  ActivityState read() const;

  // Like enter(), the next three functions must be called by the thread that does the work, which may be autograd's during backward.
  // time_own_work() starts to time own work on `device`: kLoading counts as waiting for data, and kStep counts as computing until
  // begin_exchange().
  void time_own_work(torch::Device device) { own_work_ = std::make_unique<OwnWork>(device); }
  // Call when the first gradients are ready to be sent to the other ranks; ends the time that counts as computing.
  void begin_exchange();
  // Own work since the previous read_own_work(), or since time_own_work(), which must have been called.
  OwnSeconds read_own_work() { return own_work_->read(); }

  // While an object of this class exists, the rank counts as waiting for other ranks, and no own work is measured.
  class Wait {
   public:
    explicit Wait(Activity* activity);  // does nothing if null
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
  // Not guarded by the mutex: recording time on a GPU that hangs may block, and read() on another thread would then block too.
  std::unique_ptr<OwnWork> own_work_;
};

}  // namespace trainer::distributed
