#pragma once
// Signals taken one after the other, where the program waits for them, instead of by handlers.

#include <signal.h>

#include <array>
#include <chrono>
#include <optional>

namespace trainer::launch {

// Takes SIGINT, SIGTERM and SIGCHLD of this process over as long as it lives. To be made where no other thread runs.
class SignalQueue {
 public:
  using Clock = std::chrono::steady_clock;

  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  // Waits for the next signal; empty when `deadline` passes first. Several SIGCHLD may come as one.
  std::optional<int> next(std::optional<Clock::time_point> deadline);
  // The mask from before, which child processes are to have.
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGCHLD};

  sigset_t mask_before_;
  std::array<struct sigaction, kSignals.size()> actions_before_;
  int descriptor_;
};

}  // namespace trainer::launch
