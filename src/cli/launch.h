#pragma once
// `trainer launch`: starts the processes of a run and reports how they end.

#include <string>
#include <vector>

#include "trainer/error.h"

namespace trainer::cli {

// `args`: the arguments after the command's name. Returns launch::Outcome::exit_code (launch/launcher.h) of the last attempt. Throws Error,
// UsageError for wrong arguments, and CLI::CallForHelp after printing the help for --help.
ExitCode launch(const std::vector<std::string>& args);

}  // namespace trainer::cli
