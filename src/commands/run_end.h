#pragma once
// What the console says at the end of a run, after its results: where its files are, and what to do next; and what TensorBoard shows beside
// the events.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/experiment.h"
#include "config/load.h"
#include "launch/world/rank_env.h"
#include "reporting/event_command.h"
#include "reporting/sinks.h"
#include "run/run_directory.h"
#include "run/session/session.h"
#include "trainer/events.h"

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

// `word` as a shell reads it: in quotes if it has other characters than letters, digits and those of usual paths.
std::string quoted(const std::string& word);

// The command line that trains this experiment on so many ranks of a host, with further overrides, as a shell reads it.
std::string training_command(const config::ExperimentSource& source, int world_size, const std::vector<std::string>& more = {});

// Where the events of a run go, beside the console: its files, and the program of logging.command.

// Collective: refuses a program of logging.command that cannot be found, before data is loaded.
void check_event_command(session::RankContext& context);
// Collective: starts the program of logging.command on rank 0; null on other ranks, and without one.
std::unique_ptr<reporting::EventCommand> start_event_command(session::RankContext& context);

// On the rank that writes the files of the run. `command`: null if there is none. All arguments must outlive the reporter.
void add_files(reporting::Reporter& reporter, const session::RankContext& context, session::Session& session,
               const run::RunDirectory& directory, reporting::EventCommand* command);

// Throws UsageError if `output`, the value of `option`, is a file that a run keeps about itself, which would be lost: its metrics, its
// checkpoints and all others that training writes to a run directory.
void refuse_file_of_run(const std::filesystem::path& output, std::string_view option = "--output");

// What TensorBoard shows of a run that has not begun to train, on rank 0. `config_text`: of the resolved configuration.
reporting::TensorboardRun describe_for_tensorboard(const config::Experiment& experiment, const std::string& config_text,
                                                   session::Session& session, Logger& logger);

}  // namespace trainer::commands
