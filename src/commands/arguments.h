#pragma once
// What several commands have in common on their command lines.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "config/load.h"

namespace trainer::commands {

// Parses what follows a command's name; prints the help where it is asked for.
inline void parse(CLI::App& app, std::vector<std::string> args) {
  std::reverse(args.begin(), args.end());  // CLI11 takes them from the end
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
  app.add_option("overrides", source.overrides, "keys that differ from the file, such as optimizer.lr=0.05")->type_name("key=value");
}

}  // namespace trainer::commands
