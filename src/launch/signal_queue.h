#pragma once
// Signals that the program reads one after the other instead of handling them asynchronously.

#include <signal.h>

#include <array>
#include <optional>

#include "base/descriptor.h"

namespace trainer::launch {

// While it exists, collects SIGCHLD and the stop signals (SIGINT, SIGTERM, SIGHUP, SIGUSR1) of this process. SIGHUP stays ignored if it
// is, as under nohup. Ignores SIGPIPE: the reader of this process's stderr, or a process that reads its messages, may end at any time. To
// be created while no other thread runs.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();

  // The next signal, or empty if none is pending; does not wait. Several SIGCHLD may be merged into one.
  std::optional<int> next();
  // Readable when a signal is pending.
  int descriptor() const { return queue_.number(); }
  // The previous signal mask, which child processes must get.
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD};

  sigset_t mask_before_;
  std::array<struct sigaction, kSignals.size()> actions_before_;
  sighandler_t sigpipe_before_;
  Descriptor queue_;
};

}  // namespace trainer::launch
