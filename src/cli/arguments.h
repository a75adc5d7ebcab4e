#pragma once
// Command-line parsing that several commands share.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/load.h"
#include "launch/world/rank_env.h"

namespace trainer::cli {

// Parses the arguments after a command's name; `app` is named like the command ("trainer train"). If help is requested, prints it and
// throws CallForHelp. Throws UsageError if the arguments are wrong; an unknown option is reported before a missing one.
void parse(CLI::App& app, std::vector<std::string> args);

// Passes the definition of a command, with its options, to `visit`. `run` runs the command, whose call of parse() then throws.
void visit_definition(const std::function<void()>& run, const std::function<void(const CLI::App& app)>& visit);

// `--config FILE [key=value ...]`.
void add_experiment(CLI::App& app, config::ExperimentSource& source);

// `--checkpoint FILE|DIR [--config FILE]`, for commands that use a network without training it.
void add_network_file(CLI::App& app, std::string& checkpoint, std::filesystem::path& config);

// `--checkpoint FILE|DIR`, for commands that need the experiment in it.
void add_checkpoint(CLI::App& app, std::string& checkpoint);

// `--tta none|flip|flip_and_shift`, in place of validation.tta.
void add_tta(CLI::App& app, std::optional<task::TestTimeAugmentation>& tta);

// `--rank`, `--world-size`, `--local-rank` and `--init-method`, also with underscores, as torchrun spells them.
void add_rank_flags(CLI::App& app, world::RankFlags& flags);

// `help` with lines of at most 79 columns. Continuation lines are indented like the description.
std::string wrap_help(const std::string& help);

// Whether the argument looks like the name of an experiment file.
bool is_yaml_file(std::string_view argument);

}  // namespace trainer::cli
