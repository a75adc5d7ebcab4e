#pragma once
// Runs the processes of one host: starts them, hands signals on, and ends all when one fails.

#include <chrono>
#include <string>
#include <vector>

#include "base/log.h"

namespace trainer::launch {

// Process i is rank i.
struct Processes {
  std::string program;
  std::vector<std::string> arguments;
  std::vector<std::vector<std::string>> environments;  // one a process, each whole: "NAME=value"
};

struct Patience {
  // From SIGTERM to SIGKILL, for processes that are stopped since another has failed.
  std::chrono::milliseconds with_survivors = std::chrono::seconds(5);
  // For the others, once one has stopped on request: they may be writing what is to be kept.
  std::chrono::milliseconds with_stopping = std::chrono::minutes(10);
  // A SIGINT counts as the second one only this long after the first request: the terminal and a script may both send the first.
  std::chrono::milliseconds between_interrupts = std::chrono::seconds(1);
};

// Starts the processes (child_process.h) and waits for all of them. Returns the exit code for the whole:
// - 0 when all end with it.
// - The first failure's code, or 128 + n when signal n ended it; it is said, and the others get SIGTERM and then SIGKILL. Code 4 (a
//   peer was lost) gives way to another one that follows: it names the victim, not the cause.
// - 75 (stopped on request) when a process ends with it and none fails; the others are waited for.
// - 130 after a second SIGINT, by which all are killed.
// The first SIGINT or SIGTERM is handed on to all processes, others are not. No process is left when this returns or throws (Error:
// one cannot be started). To be called where no other thread runs.
int run(const Processes& processes, const Patience& patience, Logger& logger);

}  // namespace trainer::launch
