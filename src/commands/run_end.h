#pragma once
// The lines that the console prints after the results of a run (where its files are, and what to do next), and the protection of a run's
// files from the outputs of other commands.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/load.h"
#include "launch/world/rank_env.h"
#include "run/run_directory.h"
#include "trainer/events.h"

namespace trainer::commands {

// How a run was started.
struct RunCommandLine {
  config::ExperimentSource experiment;
  std::filesystem::path run_directory;  // the value of --run-dir; empty: not given
  world::RankEnv rank_env;
};

// The command that continues the run; "the same command" for several ranks that were not started by `trainer launch` on one host.
std::string continuing_command(const RunCommandLine& start, const run::RunDirectory& directory);

// At most five lines; none after a failure, whose message contains advice. `takes_images`: whether the network's input is images.
std::vector<std::string> lines_after_run(const reporting::EndEvent& event, const RunCommandLine& start, const run::RunDirectory& directory,
                                         bool takes_images);

// `word`, quoted for a shell if it has characters other than letters, digits and the punctuation that is usual in paths.
std::string quoted(const std::string& word);

// The shell command that trains this experiment on `world_size` ranks of a host, with further arguments. Secrets in URLs are masked.
std::string training_command(const config::ExperimentSource& source, int world_size, const std::vector<std::string>& more = {});

// Throws UsageError if `output`, the value of `option`, is one of the files `inputs`, even under another name, or a file that training
// writes to a run directory, such as its metrics and checkpoints, because it would be overwritten.
void refuse_to_overwrite(const std::filesystem::path& output, const std::vector<std::filesystem::path>& inputs = {},
                         std::string_view option = "--output");

}  // namespace trainer::commands
