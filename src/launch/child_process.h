#pragma once
// One child process.

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace trainer::launch {

struct ChildProcess {
  std::string program;
  std::vector<std::string> arguments;    // its own name goes in front
  std::vector<std::string> environment;  // "NAME=value", nothing else is handed on
  sigset_t signal_mask;
  int stderr_descriptor = -1;         // -1: this process's own
  std::vector<int> kept_descriptors;  // that stay open in it, under the same numbers
};

// Starts the program in a process group of its own, with /dev/null as its stdin and this process's stdout. The kernel kills it when the
// calling thread ends. Returns once the program has taken over; throws Error when it cannot be started.
pid_t start_process(const ChildProcess& child);

}  // namespace trainer::launch
