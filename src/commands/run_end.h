#pragma once
// What the console says at the end of a run, after its results: where its files are, and what to do next.

#include <string>
#include <vector>

#include "config/load.h"
#include "run/run_directory.h"
#include "trainer/events.h"
#include "world/rank_env.h"

namespace trainer::commands {

// How a run was started.
struct RunCommandLine {
  config::ExperimentSource experiment;
  std::filesystem::path run_directory;  // the value of --run-dir; empty: not given
  world::RankEnv rank_env;
};

// The command that continues the run; "the same command" if another launcher than `trainer launch` on one host has started it.
std::string continuing_command(const RunCommandLine& start, const run::RunDirectory& directory);

// At most three lines; none after a failure, whose message says what to do.
std::vector<std::string> lines_after_run(const reporting::EndEvent& event, const RunCommandLine& start, const run::RunDirectory& directory);

}  // namespace trainer::commands
