#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <chrono>
#include <deque>
#include <optional>

namespace trainer::device {

// Measures the time that a device takes between two points of the program, without synchronizing with it. Must be used by one thread at a
// time.
class Stopwatch {
 public:
  explicit Stopwatch(torch::Device device) : device_(device) {}

  // Starts a measurement; has no effect if one is running. On a GPU, the measurement starts when its current stream reaches this point.
  void start();
  // Ends the measurement; has no effect if none is running.
  void stop();
  // Returns the total seconds between starts and stops since the last call. On a GPU, waits until it has reached the last stop.
  double read();

 private:
  struct Mark {
    std::chrono::steady_clock::time_point time;
    std::optional<c10::Event> event;  // set on a GPU, whose work cannot be timed with the host's clock
  };
  struct Lap {
    Mark start;
    Mark stop;
    bool is_over() const { return !stop.event || stop.event->query(); }
    double seconds() const;
  };

  Mark mark() const;
  void add_first_lap();

  torch::Device device_;
  std::optional<Mark> start_;
  std::deque<Lap> laps_;  // laps that a GPU may not have finished yet
  double seconds_ = 0;    // sum of the earlier laps
};

}  // namespace trainer::device
