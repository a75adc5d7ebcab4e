#pragma once
// Requests to stop. The handler only notes the signal; the training loop looks at it at step boundaries and ends in order.

#include <chrono>
#include <optional>

namespace trainer {

// Takes SIGINT, SIGTERM, SIGUSR1 and SIGHUP over, the last one unless it is ignored. A second SIGINT, one second or more after the first,
// ends the process at once (the same signal may reach a process twice, from its terminal and from its launcher). To be called once, by
// main.
void install_stop_handlers();

// The signal that asked to stop, or 0.
int stop_signal();
// How long ago that was; empty when there was none.
std::optional<std::chrono::milliseconds> time_since_stop_signal();

}  // namespace trainer
