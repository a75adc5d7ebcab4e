#pragma once
// The subcommands.

#include <string>
#include <vector>

#include "base/error.h"

namespace trainer::commands {

// `args`: what follows the command's name. Results go to stdout, logs to stderr. Throws Error for all that goes wrong; CLI11's own
// errors pass through.
struct Command {
  const char* name;
  const char* doc;
  ExitCode (*run)(const std::vector<std::string>& args);
};

ExitCode train(const std::vector<std::string>& args);
ExitCode launch(const std::vector<std::string>& args);
ExitCode config(const std::vector<std::string>& args);
ExitCode data(const std::vector<std::string>& args);
ExitCode replay(const std::vector<std::string>& args);
ExitCode export_model(const std::vector<std::string>& args);
ExitCode checkpoint(const std::vector<std::string>& args);
ExitCode verify_resume(const std::vector<std::string>& args);
ExitCode list(const std::vector<std::string>& args);

// Finds and runs the command that the arguments name; without a name they are train's. What is thrown is told torchrun too.
ExitCode run(const std::vector<std::string>& args);

}  // namespace trainer::commands
