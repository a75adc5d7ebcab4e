#pragma once

#include <exception>
#include <string>

#include "trainer/error.h"

namespace trainer {

// How a process has ended: "was killed by signal 9 (Killed)", "ended with exit code 1". `status`: from waitpid.
std::string describe_end(int status);

// That of an Error; kFailure for other exceptions.
ExitCode exit_code_of(const std::exception& error);

// Ends the process at once: without destructors, which could wait for other threads or ranks, and without writing out buffers. All code
// that ends a process calls this function. It may be called in a signal handler and after fork.
[[noreturn]] void end_process(int exit_code);
[[noreturn]] inline void end_process(ExitCode exit_code) { end_process(static_cast<int>(exit_code)); }

}  // namespace trainer
