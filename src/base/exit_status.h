#pragma once

#include <string>

namespace trainer {

// How a process has ended: "was killed by signal 9 (Killed)", "ended with exit code 1". `status`: from waitpid.
std::string describe_end(int status);

}  // namespace trainer
