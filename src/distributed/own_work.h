#pragma once
// Own work: the time a rank works without waiting for other ranks. Ranks that exchange gradients all need the same time for a step, so
// only own work distinguishes a slow rank from the ranks that wait for it.

#include "device/stopwatch.h"

namespace trainer::distributed {

struct OwnSeconds {
  double data = 0;     // waiting for the loader
  double compute = 0;  // from the batch to the first gradient bucket that is ready; all of a micro-step that sends no bucket
  double total() const { return data + compute; }
};

// Used by one thread at a time: the training thread, or autograd's thread while the training thread waits for it.
class OwnWork {
 public:
  explicit OwnWork(torch::Device device) : data_(device), compute_(device) {}

  // Each ends the measurement that was running.
  void begin_data() { switch_to(&data_); }
  void begin_compute() { switch_to(&compute_); }
  void end() { switch_to(nullptr); }
  // The time between pause() and go_on() is not own work.
  void pause();
  void go_on();

  // Own work since the last call. On a GPU, waits until the last measured work has finished.
  OwnSeconds read() { return {.data = data_.read(), .compute = compute_.read()}; }

 private:
  void switch_to(device::Stopwatch* next);

  device::Stopwatch data_;
  device::Stopwatch compute_;
  device::Stopwatch* running_ = nullptr;
};

}  // namespace trainer::distributed
