#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <chrono>
#include <deque>
#include <optional>

namespace trainer::device {

// Measures how long a device takes from one point of the program to another, without making the program wait for it. Belongs to one
// thread at a time.
class Stopwatch {
 public:
  explicit Stopwatch(torch::Device device) : device_(device) {}

  // From here on; one that runs goes on. On a GPU: from where its current stream comes to this point.
  void start();
  // Up to here; one that does not run stays as it is.
  void stop();
  // Seconds between starts and stops since the last call. Waits until a GPU has come to the last stop.
  double read();

 private:
  struct Mark {
    std::chrono::steady_clock::time_point time;
    std::optional<c10::Event> event;  // on a GPU, where the host's clock says nothing of what it does
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
  std::deque<Lap> laps_;  // that a GPU may not have come to the end of
  double seconds_ = 0;    // of those before
};

}  // namespace trainer::device
