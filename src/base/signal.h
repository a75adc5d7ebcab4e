#pragma once
// Stop requests by signal. The handler only records the signal; the training loop checks for it at step boundaries and stops cleanly.

namespace trainer {

// Installs handlers for SIGINT, SIGTERM, SIGUSR1 and, unless it is ignored, SIGHUP. A SIGINT one second or more after the first stop signal
// ends the process immediately (earlier ones do not: the same SIGINT may arrive twice, from the terminal and from the launcher). To be
// called once, by main.
void install_stop_handlers();

// The first stop signal received, or 0.
int stop_signal();

}  // namespace trainer
