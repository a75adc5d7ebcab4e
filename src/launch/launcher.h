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
  // A SIGINT or SIGTERM counts as a second request only if it arrives this long or more after the first request, because the terminal and a
  // script may both send the first.
  std::chrono::milliseconds between_requests = std::chrono::seconds(1);
};

struct Outcome {
  // - 0 when all processes exit with 0.
  // - The exit code of the first process that fails, or 128 + n when signal n killed it. The failure is logged, and the other processes are
  //   ended. Any other failure replaces code 4 (a peer was lost), because a process that exits with 4 is not the cause.
  // - 75 (stopped on request) when a process exits with 75 and none fails; the launcher waits for the others.
  // - 130 or 143 after a second SIGINT or SIGTERM, which kills all processes.
  int exit_code = 0;
  bool was_asked_to_stop = false;
};

// Starts the processes (child_process.h) and waits for all of them. Each receives messages about how the others end, stop or continue
// (launcher_messages.h) on the descriptor named by world::kLauncherMessagesVariable. Their stderr is forwarded to this process's stderr;
// lines of ranks other than 0 begin with the rank. If stderr is a terminal, rank 0 writes to it directly. The first stop signal (SIGINT,
// SIGTERM, SIGHUP, SIGUSR1) is forwarded to all processes, and suspended ones are continued; later signals are not forwarded. No process
// still runs when this returns or throws (Error: a process cannot be started). To be called while no other thread runs.
Outcome run(const Processes& processes, const TimeLimits& limits, Logger& logger);

}  // namespace trainer::launch
