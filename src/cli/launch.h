#pragma once
// `trainer launch`: starts the processes of a run and reports how they end.

#include <string>
#include <vector>

#include "trainer/error.h"

namespace trainer::cli {

// `args`: the arguments after the command's name. Returns the exit code of the first process that failed. Throws Error, and CLI11's
// exceptions for wrong arguments and for --help.
ExitCode launch(const std::vector<std::string>& args);

}  // namespace trainer::cli
