#include "base/signal.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

namespace trainer {
namespace {

// Global, because a signal handler can reach no other state.
std::atomic<int> requested_signal{0};
std::atomic<long> first_request_ms{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<long>::is_always_lock_free);

long now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

extern "C" void note_stop_signal(int signal_number) {
  int none = 0;
  if (requested_signal.compare_exchange_strong(none, signal_number)) {
    first_request_ms = now_ms();
  } else if (signal_number == SIGINT && now_ms() - first_request_ms >= 1000) {
    _exit(128 + SIGINT);
  }
}

}  // namespace

void install_stop_handlers() {
  struct sigaction action {};
  action.sa_handler = note_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal_number : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal_number, &action, nullptr);
  // SIGHUP stays ignored under nohup.
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

int stop_signal() { return requested_signal; }

}  // namespace trainer
