#pragma once
// How long a rank works by itself. Ranks that exchange gradients all take equally long for a step, so that only this tells a slow one
// from those that wait for it.

#include "device/stopwatch.h"

namespace trainer::distributed {

struct OwnSeconds {
  double data = 0;     // waiting for the loader
  double compute = 0;  // from the batch to the first bucket of gradients that is ready; the whole of a micro-step that sends none
  double total() const { return data + compute; }
};

// Belongs to the thread that works, at each moment one: the training thread, or autograd's while that waits for it.
class OwnWork {
 public:
  explicit OwnWork(torch::Device device) : data_(device), compute_(device) {}

  // Each ends what was before.
  void begin_data() { switch_to(&data_); }
  void begin_compute() { switch_to(&compute_); }
  void end() { switch_to(nullptr); }
  // What lies between the two is no own work.
  void pause();
  void go_on();

  // Since the last call. Waits until a GPU has come to the end of the last piece of own work.
  OwnSeconds read() { return {.data = data_.read(), .compute = compute_.read()}; }

 private:
  void switch_to(device::Stopwatch* next);

  device::Stopwatch data_;
  device::Stopwatch compute_;
  device::Stopwatch* running_ = nullptr;
};

}  // namespace trainer::distributed
