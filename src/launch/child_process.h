#pragma once
// One child process.

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace trainer::launch {

// Starts `program` with `arguments` (its own name goes in front) and `environment` ("NAME=value", nothing else is handed on) in a
// process group of its own, with `signal_mask`, /dev/null as its stdin and this process's stdout and stderr. The kernel kills it when
// the calling thread ends. Returns once the program has taken over; throws Error when it cannot be started.
pid_t start_process(const std::string& program, const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                    const sigset_t& signal_mask);

}  // namespace trainer::launch
