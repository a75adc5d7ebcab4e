#include "commands/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/store.h"
#include "checkpoint/torch_zip.h"
#include "config/compare.h"
#include "config/node.h"
#include "state/view.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;

// With another value of these keys the state means nothing.
bool makes_another_run(const std::string& difference) {
  const auto key = difference.substr(0, difference.find(':'));
  if (key.starts_with("model.init")) return false;
  return key == "seed" || key.starts_with("model.") || key == "dataset.name" || key == "dataset.validation_split" ||
         key == "optimizer.name";
}

void compare_configurations(const Checkpoint& checkpoint, const std::string& config_text, Logger& logger) {
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

std::optional<Checkpoint> newest_good(const fs::path& folder, Logger& logger) {
  const auto files = checkpoint::list_checkpoints(folder);
  for (const auto& file : files) {
    try {
      return Checkpoint{file, checkpoint::read_torch_zip(file)};
    } catch (const CheckpointError& error) {
      logger.warn("{}", error.what());
    }
  }
  if (files.empty()) return std::nullopt;
  throw CheckpointError(fmt::format("none of the {} checkpoints in {} can be read; choose another --run-dir, or remove the folder",
                                    files.size(), folder.string()));
}

Checkpoint read_chosen(const run::RunDirectory& directory, const fs::path& file) {
  Checkpoint checkpoint{file, checkpoint::read_torch_zip(file)};
  if (directory.earlier() == run::RunDirectory::Earlier::kNothing) return checkpoint;
  const auto target = fs::canonical(file);
  const auto files = checkpoint::list_checkpoints(fs::weakly_canonical(directory.checkpoint_folder()));
  if (files.empty() || files.front() != target) {
    const bool is_here = std::ranges::find(files, target) != files.end();
    throw UsageError(fmt::format("--resume {}: {} holds {}, which would be lost; choose another --run-dir{}", file.string(),
                                 directory.path().string(), is_here ? "newer checkpoints" : "another run",
                                 is_here ? ", or remove the newer ones" : ""));
  }
  return checkpoint;
}

void refuse_to_overwrite(const run::RunDirectory& directory) {
  const auto earlier = directory.earlier();
  if (earlier == run::RunDirectory::Earlier::kNothing) return;
  throw UsageError(fmt::format("--resume none: {} holds {} run, which is not overwritten; choose another --run-dir or remove the folder",
                               directory.path().string(),
                               earlier == run::RunDirectory::Earlier::kFinished ? "a finished" : "an unfinished"));
}

}  // namespace

Beginning choose_beginning(const run::RunDirectory& directory, const std::string& choice, const std::string& config_text, Logger& logger) {
  Beginning beginning;
  if (choice == "none") {
    refuse_to_overwrite(directory);
    return beginning;
  }
  const auto earlier = directory.earlier();
  if (earlier == run::RunDirectory::Earlier::kFinished) {
    logger.info("{} holds a finished run (see {}); to train again, choose another --run-dir or remove the folder",
                directory.path().string(), directory.summary_file().string());
    return {.is_finished = true};
  }
  beginning.checkpoint =
      choice == "auto" ? newest_good(directory.checkpoint_folder(), logger) : std::optional(read_chosen(directory, choice));
  if (beginning.checkpoint) {
    compare_configurations(*beginning.checkpoint, config_text, logger);
    cut_back(directory, *beginning.checkpoint);
  } else if (earlier == run::RunDirectory::Earlier::kUnfinished) {
    logger.warn("the run in {} had not saved anything yet: it begins again from its first step", directory.path().string());
    directory.clear();
  }
  return beginning;
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
  return {file, checkpoint::read_torch_zip({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, file.string())};
}

}  // namespace trainer::commands
