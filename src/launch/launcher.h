#pragma once
// Runs the processes of one host: starts them, forwards signals and output, and ends all of them when one fails.

#include <chrono>
#include <string>
#include <vector>

#include "base/log.h"

namespace trainer::launch {

// Process i has the rank first_rank + i.
struct Processes {
  std::string program;
  std::vector<std::string> arguments;
  std::vector<std::vector<std::string>> environments;  // the complete environment of each process: "NAME=value"
  int first_rank = 0;
  std::vector<int> first_keeps = {};  // descriptors that the first process inherits
};

struct TimeLimits {
  // After a failure: how long the other processes may run before SIGTERM, and from then until SIGKILL.
  std::chrono::milliseconds after_failure = std::chrono::seconds(4);
  std::chrono::milliseconds after_sigterm = std::chrono::seconds(1);
  // How long the other processes may run after one has stopped on request, because they may be writing checkpoints.
  std::chrono::milliseconds after_stop = std::chrono::minutes(10);
  // Until a SIGINT or SIGTERM counts as a second request, because the terminal and a script may both send the first.
  std::chrono::milliseconds between_requests = std::chrono::seconds(1);
};

struct Outcome {
  // The exit code of the first process that fails, or 128 + n when signal n killed it; any other failure replaces code 4 (a peer was lost),
  // whose process is not the cause. 75 (stopped on request) when a process exits with 75 and none fails. 130 or 143 after a second SIGINT
  // or SIGTERM, which kills all processes.
  int exit_code = 0;
  bool was_asked_to_stop = false;
};

// Starts the processes and waits for all of them. Each receives messages about the others (launcher_messages.h) on the descriptor named by
// world::kLauncherMessagesVariable. Their stderr is forwarded; lines of ranks other than 0 begin with the rank. The first stop signal is
// forwarded to all processes, and suspended ones are continued. No process still runs when this returns or throws (Error: a process cannot
// be started). To be called while no other thread runs.
Outcome run(const Processes& processes, const TimeLimits& limits, Logger& logger);

}  // namespace trainer::launch
