#include "session/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/store.h"
#include "config/compare.h"
#include "config/node.h"
#include "state/view.h"

namespace trainer::session {
namespace {

namespace fs = std::filesystem;

// With another value of these keys a checkpoint cannot be resumed.
bool makes_another_run(const std::string& difference) {
  const auto key = difference.substr(0, difference.find(':'));
  if (key.starts_with("model.init")) return false;
  return key == "seed" || key.starts_with("model.") || key == "dataset.name" || key == "dataset.validation_split" ||
         key == "optimizer.name";
}

void check_configuration(const Checkpoint& checkpoint, const std::string& config_text, Logger& logger) {
  const auto source = checkpoint.file.string();
  const auto then = config::parse_yaml(state::View(checkpoint.tree, source).at("config").text(), source);
  auto changes = config::differences(then, config::parse_yaml(config_text, "the configuration"));
  const auto others = std::ranges::stable_partition(changes, makes_another_run);
  const std::vector<std::string> refused(changes.begin(), others.begin());
  if (!refused.empty()) {
    throw UsageError(fmt::format("{} is of another run ({}); change that back, or choose another --run-dir", source, join(refused, "; ")));
  }
  for (const auto& change : others) logger.info("changed since the checkpoint: {}", change);
}

void cut_back(const run::RunDirectory& directory, const Checkpoint& checkpoint) {
  const auto files = state::View(checkpoint.tree, checkpoint.file.string()).at("event_files");
  std::map<std::string, uint64_t> sizes;
  for (const auto& name : files.keys()) sizes[state::to_string(name)] = static_cast<uint64_t>(files.at(name).integer());
  directory.cut_back(sizes);
}

Checkpoint read_checkpoint(const fs::path& file) { return {file, checkpoint::read_pytorch_file(file)}; }

Checkpoint newest_readable(const fs::path& folder, Logger& logger) {
  const auto files = checkpoint::list_checkpoints(folder);
  for (const auto& file : files) {
    try {
      return read_checkpoint(file);
    } catch (const CheckpointError& error) {
      logger.warn("{}", error.what());
    }
  }
  throw CheckpointError(fmt::format("none of the {} checkpoints in {} can be read; choose another --run-dir, or remove the folder",
                                    files.size(), folder.string()));
}

std::vector<fs::path> canonical_checkpoints(const fs::path& folder) {
  return fs::exists(folder) ? checkpoint::list_checkpoints(fs::canonical(folder)) : std::vector<fs::path>();
}

}  // namespace

ResumeDecision decide_resume(const RunDirectoryContents& contents, const std::string& choice, const fs::path& file) {
  using Earlier = run::RunDirectory::Earlier;
  const auto& [path, earlier, checkpoints] = contents;
  if (choice == "none") {
    if (earlier == Earlier::kNothing) return ResumeDecision::kStart;
    throw UsageError(fmt::format("--resume none: {} holds {} run, which is not overwritten; choose another --run-dir or remove the folder",
                                 path.string(), earlier == Earlier::kFinished ? "a finished" : "an unfinished"));
  }
  if (earlier == Earlier::kFinished) return ResumeDecision::kFinished;
  if (choice == "auto") {
    if (!checkpoints.empty()) return ResumeDecision::kResumeNewest;
    return earlier == Earlier::kNothing ? ResumeDecision::kStart : ResumeDecision::kStartAgain;
  }
  const bool is_newest = !checkpoints.empty() && checkpoints.front() == file;
  if (earlier == Earlier::kNothing || is_newest) return ResumeDecision::kResumeFile;
  const bool is_here = std::ranges::find(checkpoints, file) != checkpoints.end();
  throw UsageError(fmt::format("--resume {}: {} holds {}, which would be lost; choose another --run-dir{}", choice, path.string(),
                               is_here ? "newer checkpoints" : "another run", is_here ? ", or remove the newer ones" : ""));
}

RunStart prepare_run_start(const run::RunDirectory& directory, const std::string& choice, const std::string& config_text, Logger& logger) {
  const RunDirectoryContents contents{directory.path(), directory.earlier(), canonical_checkpoints(directory.checkpoint_folder())};
  const bool is_file = choice != "auto" && choice != "none";
  std::optional<Checkpoint> chosen;
  if (is_file && contents.earlier != run::RunDirectory::Earlier::kFinished) chosen = read_checkpoint(choice);
  switch (decide_resume(contents, choice, chosen ? fs::canonical(choice) : fs::path())) {
    case ResumeDecision::kFinished:
      logger.info("{} holds a finished run (see {}); to train again, choose another --run-dir or remove the folder",
                  directory.path().string(), directory.summary_file().string());
      return {.is_finished = true};
    case ResumeDecision::kStart:
      return {};
    case ResumeDecision::kStartAgain:
      logger.warn("the run in {} had not saved a checkpoint yet: it starts again from its first step", directory.path().string());
      directory.clear();
      return {};
    case ResumeDecision::kResumeNewest:
    case ResumeDecision::kResumeFile:
      break;
  }
  auto checkpoint = chosen ? std::move(*chosen) : newest_readable(directory.checkpoint_folder(), logger);
  check_configuration(checkpoint, config_text, logger);
  cut_back(directory, checkpoint);
  return {.checkpoint = std::move(checkpoint)};
}

Checkpoint share(const fs::path& file, std::optional<Checkpoint> mine, const distributed::ProcessGroup& world) {
  if (world.size() == 1) return std::move(*mine);
  std::string bytes;
  if (mine) {
    const MappedFile map(file);
    bytes.assign(map.bytes().begin(), map.bytes().end());
  }
  bytes = world.broadcast_bytes(bytes);
  if (mine) return std::move(*mine);
  return {file, checkpoint::read_pytorch_file({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, file.string())};
}

}  // namespace trainer::session
