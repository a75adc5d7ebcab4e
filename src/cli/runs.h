#pragma once
// `trainer runs` and `trainer compare`: list and compare run directories, without LibTorch.

#include <string>
#include <vector>

#include "trainer/error.h"

namespace trainer::cli {

// `args`: the arguments after the command's name. Throw Error, UsageError for wrong arguments, and CLI::CallForHelp after printing the help
// for --help.
ExitCode runs(const std::vector<std::string>& args);
ExitCode compare(const std::vector<std::string>& args);

}  // namespace trainer::cli
