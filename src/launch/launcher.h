#pragma once
// Runs the processes of one host: starts them, hands signals and output on, and ends all when one fails.

#include <chrono>
#include <string>
#include <vector>

#include "base/log.h"

namespace trainer::launch {

// Process i is rank first_rank + i.
struct Processes {
  std::string program;
  std::vector<std::string> arguments;
  std::vector<std::vector<std::string>> environments;  // one a process, each whole: "NAME=value"
  int first_rank = 0;
  std::vector<int> first_keeps = {};  // descriptors that the first process inherits
};

struct Patience {
  // For processes that know that another has failed, until SIGTERM, and from there to SIGKILL.
  std::chrono::milliseconds with_survivors = std::chrono::seconds(4);
  std::chrono::milliseconds after_sigterm = std::chrono::seconds(1);
  // For the others, once one has stopped on request: they may be writing what is to be kept.
  std::chrono::milliseconds with_stopping = std::chrono::minutes(10);
  // A SIGINT counts as the second one only this long after the first request: the terminal and a script may both send the first.
  std::chrono::milliseconds between_interrupts = std::chrono::seconds(1);
};

struct Outcome {
  // - 0 when all end with it.
  // - The first failure's, or 128 + n when signal n ended it; it is said, with the process's last lines, and the others are ended.
  //   Code 4 (a peer was lost) gives way to any other: it names the victim, not the cause.
  // - 75 (stopped on request) when a process ends with it and none fails; the others are waited for.
  // - 130 after a second SIGINT, by which all are killed.
  int exit_code = 0;
  bool was_asked_to_stop = false;
};

// Starts the processes (child_process.h) and waits for all of them. Each receives on the descriptor that world::kLauncherMessagesVariable
// names messages of how others have ended (launcher_messages.h). What they say on stderr comes out here, each line of ranks other than 0
// with its rank; rank 0 keeps a terminal to itself. The first request to stop (SIGINT, SIGTERM, SIGHUP, SIGUSR1) is handed on to all
// processes, others are not. No process is left when this returns or throws (Error: one cannot be started). To be called where no other
// thread runs.
Outcome run(const Processes& processes, const Patience& patience, Logger& logger);

}  // namespace trainer::launch
