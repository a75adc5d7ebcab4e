#pragma once
// How a process has ended, for the log and for exit codes. `status`: from waitpid.

#include <sys/types.h>

#include <deque>
#include <string>

namespace trainer::launch {

// As a shell shows it: 128 + n when signal n killed the process.
int exit_code_of(int status);

// With the last lines of the process's output, unless they are known to name the reason already.
std::string describe_failure(int rank, pid_t process, int status, const std::deque<std::string>& last_lines);

// Which rank has failed, as the last of these lines says that reports it (kThisRankExits); empty if none does.
std::string reported_cause(const std::deque<std::string>& lines);

}  // namespace trainer::launch
