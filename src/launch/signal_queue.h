#pragma once
// Signals taken one after the other, where the program waits for them, instead of by handlers.

#include <signal.h>

#include <array>
#include <optional>

#include "base/descriptor.h"

namespace trainer::launch {

// Takes SIGCHLD and the requests to stop (SIGINT, SIGTERM, SIGHUP, SIGUSR1) of this process over as long as it lives. SIGHUP stays
// ignored where it is, as under nohup. To be made where no other thread runs.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  // The next signal, or empty when none has come; does not wait. Several SIGCHLD may come as one.
  std::optional<int> next();
  // Is readable when there is one.
  int descriptor() const { return queue_.number(); }
  // The mask from before, which child processes are to have.
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD};

  sigset_t mask_before_;
  std::array<struct sigaction, kSignals.size()> actions_before_;
  Descriptor queue_;
};

}  // namespace trainer::launch
