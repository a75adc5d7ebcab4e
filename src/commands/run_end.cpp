#include "commands/run_end.h"

#include <fmt/format.h>

#include "base/text.h"
#include "commands/next_command.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;

// Those of the folder that a person looks for.
std::string list_files(const run::RunDirectory& directory, const fs::path& best) {
  std::vector<std::string> names;
  const auto add = [&](const fs::path& file) { names.push_back(file.lexically_relative(directory.path()).string()); };
  if (fs::exists(best)) add(best);
  // The summary is written at the same time as this line.
  add(directory.summary_file());
  add(directory.log_file());
  return join(names, ", ");
}

}  // namespace

std::string continuing_command(const RunCommandLine& start, const run::RunDirectory& directory) {
  const auto& rank_env = start.rank_env;
  const bool has_own_launcher = rank_env.launcher_messages_descriptor >= 0 && rank_env.local_world_size == rank_env.world_size;
  if (rank_env.world_size > 1 && !has_own_launcher) return "the same command";
  auto experiment = start.experiment;
  // What came through a pipe is gone; the run directory has it, with its overrides.
  if (!fs::is_regular_file(experiment.file)) experiment = {.file = directory.config_file(), .overrides = {}};
  std::vector<std::string> more;
  if (!start.run_directory.empty()) more = {"--run-dir", start.run_directory.string()};
  return training_command(experiment, rank_env.world_size, more);
}

std::vector<std::string> lines_after_run(const reporting::EndEvent& event, const RunCommandLine& start,
                                         const run::RunDirectory& directory) {
  if (event.reason == "failed") return {};
  const auto path = directory.path().string();
  const auto best = directory.checkpoint_folder() / "best.pt";
  std::vector<std::string> lines = {fmt::format("files in {}: {}", path, list_files(directory, best))};
  if (event.reason == "stopped") {
    lines.push_back("to continue: " + continuing_command(start, directory));
  } else if (fs::exists(best)) {
    lines.push_back("to evaluate: trainer eval --checkpoint " + quoted(best.string()));
  }
  lines.push_back("for curves:  trainer report " + quoted(path));
  return lines;
}

}  // namespace trainer::commands
