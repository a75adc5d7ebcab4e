#include "commands/run_end.h"

#include <fmt/format.h>

#include "base/text.h"
#include "base/url.h"
#include "report/history/run_record.h"
#include "trainer/error.h"

namespace trainer::commands {

namespace fs = std::filesystem;

std::string continuing_command(const RunCommandLine& start, const run::RunDirectory& directory) {
  const auto& rank_env = start.rank_env;
  const bool has_own_launcher = rank_env.launcher_messages_descriptor >= 0 && rank_env.local_world_size == rank_env.world_size;
  if (rank_env.world_size > 1 && !has_own_launcher) return "the same command";
  auto experiment = start.experiment;
  // An experiment from a pipe cannot be read again; the run directory has it, with its overrides.
  if (!fs::is_regular_file(experiment.file)) experiment = {.file = directory.config_file(), .overrides = {}};
  std::vector<std::string> more;
  if (!start.run_directory.empty()) more = {"--run-dir", start.run_directory.string()};
  return training_command(experiment, rank_env.world_size, more);
}

std::vector<std::string> lines_after_run(const reporting::EndEvent& event, const RunCommandLine& start, const run::RunDirectory& directory,
                                         bool takes_images) {
  if (event.reason == "failed") return {};
  const auto path = directory.path().string();
  const auto best = directory.checkpoint_folder() / "best.pt";
  const auto name_of = [&](const fs::path& file) { return file.lexically_relative(directory.path()).string(); };
  // The files that users need most often. The summary may not exist yet, because another sink writes it at the same event.
  auto files = name_of(directory.summary_file()) + ", " + name_of(directory.log_file());
  if (fs::exists(best)) files.insert(0, name_of(best) + ", ");
  std::vector<std::string> lines = {fmt::format("files in {}: {}", path, files)};
  if (event.reason == "stopped") {
    lines.push_back("to continue: " + continuing_command(start, directory));
  } else if (fs::exists(best)) {
    const auto checkpoint = " --checkpoint " + quoted(best.string());
    lines.push_back("to evaluate: trainer eval" + checkpoint);
    if (takes_images) lines.push_back("to predict:  trainer predict" + checkpoint + " IMAGE");
    lines.push_back("to export:   trainer export" + checkpoint + " --output model.onnx");
  }
  lines.push_back("for curves:  trainer report " + quoted(path));
  return lines;
}

std::string quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string training_command(const config::ExperimentSource& source, int world_size, const std::vector<std::string>& more) {
  auto text = world_size == 1 ? std::string("trainer") : fmt::format("trainer launch --nproc-per-node {}", world_size);
  text += " --config " + quoted(source.file.string());
  for (const auto* overrides : {&source.overrides, &more}) {
    for (const auto& override_text : *overrides) text += " " + quoted(without_secrets(override_text));
  }
  return text;
}

void refuse_to_overwrite(const fs::path& output, const std::vector<fs::path>& inputs, std::string_view option) {
  std::error_code no_file;
  const auto file = fs::canonical(output, no_file);
  if (no_file) return;
  for (const auto& input : inputs) {
    if (!fs::equivalent(input, output, no_file)) continue;
    throw UsageError(
        fmt::format("{} {}: this is the file {}, which would be overwritten; give another name", option, output.string(), input.string()));
  }
  for (auto folder = file.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (!history::is_run_directory(folder) || !run::is_file_of_run(file.lexically_relative(folder))) continue;
    throw UsageError(fmt::format("{} {}: this is a file of the run in {}, which would be overwritten; give another name", option,
                                 output.string(), folder.string()));
  }
}

}  // namespace trainer::commands
