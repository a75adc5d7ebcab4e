#pragma once
// What the command lines of several commands have in common.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "config/load.h"

namespace trainer::commands {

// Parses the arguments after a command's name. Prints the help and throws CallForHelp if it is requested.
inline void parse(CLI::App& app, std::vector<std::string> args) {
  std::reverse(args.begin(), args.end());  // CLI11 expects them in reverse order
  try {
    app.parse(args);
  } catch (const CLI::CallForHelp& help) {
    app.exit(help);
    throw;
  }
}

// `--config FILE [key=value ...]`.
inline void add_experiment(CLI::App& app, config::ExperimentSource& source) {
  app.add_option("--config", source.file, "the experiment file (YAML)")->required()->type_name("FILE");
  app.add_option("overrides", source.overrides, "keys to set to other values than in the file, such as optimizer.lr=0.05")
      ->type_name("key=value");
}

}  // namespace trainer::commands
