#include "device/stopwatch.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace trainer::device {

void Stopwatch::start() {
  if (!start_) start_ = mark();
}

void Stopwatch::stop() {
  if (!start_) return;
  laps_.push_back({std::move(*start_), mark()});
  start_.reset();
  // Keep only the laps whose end the GPU has not reached yet.
  while (!laps_.empty() && laps_.front().is_over()) add_first_lap();
}

double Stopwatch::read() {
  while (!laps_.empty()) {
    if (const auto& event = laps_.front().stop.event) event->synchronize();
    add_first_lap();
  }
  return std::exchange(seconds_, 0);
}

Stopwatch::Mark Stopwatch::mark() const {
  if (device_.is_cpu()) return {std::chrono::steady_clock::now(), std::nullopt};
  // With this flag, events record timestamps.
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return {{}, std::move(event)};
}

void Stopwatch::add_first_lap() {
  seconds_ += laps_.front().seconds();
  laps_.pop_front();
}

double Stopwatch::Lap::seconds() const {
  if (!start.event) return std::chrono::duration<double>(stop.time - start.time).count();
  constexpr double kMilliseconds = 1e-3;
  return start.event->elapsedTime(*stop.event) * kMilliseconds;
}

}  // namespace trainer::device
