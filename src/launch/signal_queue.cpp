#include "launch/signal_queue.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "base/error.h"

namespace trainer::launch {

SignalQueue::SignalQueue() {
  sigset_t signals;
  sigemptyset(&signals);
  // A signal that whoever started us has set to be ignored would not reach the queue.
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaddset(&signals, kSignals[i]);
    sigaction(kSignals[i], &action, &actions_before_[i]);
  }
  sigprocmask(SIG_BLOCK, &signals, &mask_before_);
  descriptor_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) throw Error("signalfd: " + std::generic_category().message(errno));
}

SignalQueue::~SignalQueue() {
  close(descriptor_);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &actions_before_[i], nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> SignalQueue::next(std::optional<Clock::time_point> deadline) {
  while (true) {
    signalfd_siginfo info{};
    if (read(descriptor_, &info, sizeof info) == sizeof info) return static_cast<int>(info.ssi_signo);
    int timeout_ms = -1;
    if (deadline) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
      if (left <= 0) return std::nullopt;
      timeout_ms = static_cast<int>(std::min<int64_t>(left, std::numeric_limits<int>::max()));
    }
    pollfd wanted = {descriptor_, POLLIN, 0};
    poll(&wanted, 1, timeout_ms);
  }
}

}  // namespace trainer::launch
