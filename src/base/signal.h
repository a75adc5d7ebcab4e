#pragma once
// Stop requests by signal, and repairs of the state that a process inherits.

#include <chrono>
#include <filesystem>
#include <optional>

namespace trainer {

// Blocks stop signals until install_stop_handlers() or exit_on_stop_signals(), so that none is lost or ends the process in between.
void block_stop_signals();
// Records SIGINT, SIGTERM, SIGUSR1 and, unless it is ignored, SIGHUP for stop_signal(), and unblocks them. A SIGINT one second or more
// after the first stop signal ends the process at once; earlier ones may be the same from the terminal and from the launcher.
void install_stop_handlers();
// Until install_stop_handlers() is called, makes a stop signal end the process at once with ExitCode::kStopped, unless the process ignores
// that signal. Unblocks these signals.
void exit_on_stop_signals();
// While this exists, a stop signal that ends the process also removes `file`. Of several objects at once only the first one has an effect.
class RemovedOnExit {
 public:
  explicit RemovedOnExit(const std::filesystem::path& file);
  ~RemovedOnExit();
  RemovedOnExit(const RemovedOnExit&) = delete;
  RemovedOnExit& operator=(const RemovedOnExit&) = delete;

 private:
  bool counts_ = false;
};

// The first stop signal received, or 0.
int stop_signal();
// The time since that signal; empty if there was none.
std::optional<std::chrono::milliseconds> time_since_stop_signal();
// Whether another stop signal arrived one second or more after the first one.
bool is_stop_repeated();

// To be called by main before anything else:
// - Closed descriptors 0 to 2 are opened on /dev/null, so that no other file gets one of these numbers and then receives printed text.
//   Writing results to a closed standard output remains an error (base/standard_streams.h).
// - SIGXFSZ is ignored, so that a write beyond the file size limit (ulimit -f) fails with an error.
// - SIGCHLD gets its default action if it is ignored, because this process could not wait for its child processes otherwise.
void repair_inherited_state();

// Throws Error if the working folder has been removed or cannot be used, because LibTorch's kernels cannot be loaded there.
void check_working_folder();

}  // namespace trainer
