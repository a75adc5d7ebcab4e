#pragma once

#include <CLI/CLI.hpp>

namespace trainer::commands {

// `--plugin FILE`, which is loaded while the command line is parsed: for commands that read no experiment file, or one in a checkpoint.
void add_plugin_option(CLI::App& app);

}  // namespace trainer::commands
