#pragma once
// The commands that need no LibTorch: `trainer launch` starts the processes of a run and reports how they end; `trainer runs` and `trainer
// compare` list and compare run directories.

#include <string>
#include <vector>

#include "trainer/error.h"

namespace trainer::cli {

// `args`: the arguments after the command's name. Throw Error, UsageError for wrong arguments, and CLI::CallForHelp after printing the help
// for --help. launch() returns launch::Outcome::exit_code (launch/launcher.h) of the last attempt.
ExitCode launch(const std::vector<std::string>& args);
ExitCode runs(const std::vector<std::string>& args);
ExitCode compare(const std::vector<std::string>& args);

}  // namespace trainer::cli
