#pragma once
// A child process and its stderr.

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace trainer::launch {

struct ChildProcess {
  std::string program;
  std::vector<std::string> arguments;    // without argv[0], which is `program`
  std::vector<std::string> environment;  // "NAME=value"; the complete environment
  sigset_t signal_mask;
  int stderr_descriptor = -1;         // -1: this process's stderr
  std::vector<int> kept_descriptors;  // inherited under the same numbers
};

// Starts the program in a new process group, with /dev/null as its stdin and this process's stdout. The kernel kills it when the calling
// thread ends. Throws Error when the program cannot be started.
pid_t start_process(const ChildProcess& child);

// Forwards whole lines to stderr, with `prefix` before each line that does not begin with it already, and keeps the last lines.
class Output {
 public:
  // `pipe`: the non-blocking read end, or an empty Descriptor, from which nothing is read.
  Output(Descriptor pipe, std::string prefix);

  // -1 without a pipe, and once the output has ended.
  int descriptor() const { return pipe_.number(); }
  // Forwards available output without waiting, up to a limit.
  void forward();
  // Forwards the rest and closes the pipe, which a process that the child has started may still hold open.
  void finish();
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  void forward(size_t most_bytes);
  void end();
  void forward_line(const std::string& line);

  Descriptor pipe_;
  std::string prefix_;
  std::string rest_;  // the last, incomplete line
  std::deque<std::string> last_lines_;
};

// Collects SIGCHLD and the stop signals (SIGINT, SIGTERM, SIGHUP, SIGUSR1) of this process; SIGHUP stays ignored under nohup. Ignores
// SIGPIPE, because the reader of this process's stderr and the children may exit at any time. To be created while no other thread runs.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();

  // Does not wait. Several SIGCHLD may be merged into one.
  std::optional<int> next();
  int descriptor() const { return queue_.number(); }
  // For child processes.
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD};

  sigset_t mask_before_;
  std::array<struct sigaction, kSignals.size()> actions_before_;
  sighandler_t sigpipe_before_;
  Descriptor queue_;
};

}  // namespace trainer::launch
