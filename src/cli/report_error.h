#pragma once

#include <functional>

#include "trainer/error.h"

namespace trainer::cli {

// Runs a command. Prints its error to stderr, if there is one, and returns the exit code of the process. Does not throw.
int run_and_report(const std::function<ExitCode()>& command);

// The same for the whole program: then writes out what it printed, also after a failure, and reports if that fails.
int run_program(const std::function<ExitCode()>& command);

}  // namespace trainer::cli
