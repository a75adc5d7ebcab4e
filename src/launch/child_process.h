#pragma once
// One child process.

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

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
// thread ends. Returns once execve has succeeded; throws Error when the program cannot be started.
pid_t start_process(const ChildProcess& child);

}  // namespace trainer::launch
