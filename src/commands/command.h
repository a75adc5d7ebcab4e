#pragma once
// The commands of the command line.

#include <span>
#include <string>
#include <vector>

#include "trainer/error.h"

namespace trainer::commands {

// `args`: the arguments after the command's name. Results are printed to stdout, logs to stderr. Throws Error, and CLI11's exceptions for
// wrong arguments and for --help.
struct Command {
  const char* name;
  const char* doc;
  ExitCode (*run)(const std::vector<std::string>& args);
};

ExitCode train(const std::vector<std::string>& args);
ExitCode init(const std::vector<std::string>& args);
ExitCode validate(const std::vector<std::string>& args);
ExitCode eval(const std::vector<std::string>& args);
ExitCode predict(const std::vector<std::string>& args);
ExitCode config(const std::vector<std::string>& args);
ExitCode data(const std::vector<std::string>& args);
ExitCode doctor(const std::vector<std::string>& args);
ExitCode report(const std::vector<std::string>& args);
ExitCode replay(const std::vector<std::string>& args);
ExitCode export_model(const std::vector<std::string>& args);
ExitCode checkpoint(const std::vector<std::string>& args);
ExitCode verify_resume(const std::vector<std::string>& args);
ExitCode lr_find(const std::vector<std::string>& args);
ExitCode list(const std::vector<std::string>& args);

// In the order of the help.
std::span<const Command> all_commands();

// Runs the command that the arguments name; arguments without a name belong to `train`. Also writes errors to torchrun's error file.
ExitCode run(const std::vector<std::string>& args);

}  // namespace trainer::commands
