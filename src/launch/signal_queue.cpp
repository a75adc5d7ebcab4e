#include "launch/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "trainer/error.h"

namespace trainer::launch {

SignalQueue::SignalQueue() : sigpipe_before_(signal(SIGPIPE, SIG_IGN)) {
  sigset_t signals;
  sigemptyset(&signals);
  // A signal that the parent process has set to be ignored would not reach the queue.
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &actions_before_[i]);
    if (kSignals[i] == SIGHUP && actions_before_[i].sa_handler == SIG_IGN) continue;
    sigaddset(&signals, kSignals[i]);
    sigaction(kSignals[i], &action, nullptr);
  }
  sigprocmask(SIG_BLOCK, &signals, &mask_before_);
  queue_ = Descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (descriptor() < 0) throw Error("signalfd: " + std::generic_category().message(errno));
}

SignalQueue::~SignalQueue() {
  signal(SIGPIPE, sigpipe_before_);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &actions_before_[i], nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> SignalQueue::next() {
  signalfd_siginfo info{};
  if (read(descriptor(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace trainer::launch
