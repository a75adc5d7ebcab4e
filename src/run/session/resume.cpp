#include "run/session/resume.h"

#include <c10/util/hash.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/text.h"
#include "checkpoint/read_file.h"
#include "checkpoint/store.h"
#include "config/yaml.h"
#include "data/samplers/sampler.h"
#include "inference/description.h"
#include "run/samples/split_samples.h"
#include "train/engine/validations.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"

namespace trainer::session {
namespace {

namespace fs = std::filesystem;

// What to do if the data differs from that of a checkpoint.
constexpr const char* kOtherData = "restore the data, or start a new run in another --run-dir";

// `text`: the resolved configuration that a run wrote. It may need plug-ins that are not loaded, which does not matter if their values are
// the same or may differ.
std::vector<config::Value> values_of(const std::string& text, const std::string& source) {
  return config::values_of(config::parse_yaml(text, source));
}

void check_configuration(const Checkpoint& checkpoint, const std::vector<config::Value>& now, Logger& logger) {
  const auto source = checkpoint.file.string();
  auto changes = config::differences(values_of(state::View(checkpoint.tree, source).at("config").text(), source), now);
  const auto others =
      std::ranges::stable_partition(changes, [](const config::Difference& change) { return change.facts.is_fixed_on_resume; });
  const std::vector<config::Difference> refused(changes.begin(), others.begin());
  if (!refused.empty()) {
    throw UsageError(fmt::format("{} was saved with another configuration ({}); undo this change, or start a new run in another --run-dir",
                                 source, config::to_string(refused)));
  }
  for (const auto& change : others) logger.info("changed since the checkpoint: {}", config::to_string(change));
}

// Whether the only change is a greater number of epochs or of steps.
bool only_trains_longer(const std::vector<config::Difference>& changes) {
  if (changes.size() != 1) return false;
  const auto& [key, then, now, facts] = changes.front();
  const auto before = parse_number<int64_t>(then);
  return (key == "training.epochs" || key == "training.steps") && before && parse_number<int64_t>(now) > before;
}

void truncate_event_files(const run::RunDirectory& directory, const Checkpoint& checkpoint) {
  const auto files = state::View(checkpoint.tree, checkpoint.file.string()).at("event_files");
  std::map<std::string, uint64_t> sizes;
  for (const auto& name : files.keys()) sizes[state::to_string(name)] = static_cast<uint64_t>(files.at(name).integer());
  directory.truncate_event_files(sizes);
}

// `remedy`: what to do if no checkpoint can be read.
Checkpoint newest_readable(const fs::path& folder, const char* remedy, Logger& logger) {
  const auto files = checkpoint::list_checkpoints(folder);
  for (const auto& file : files) {
    try {
      return {file, checkpoint::load(file)};
    } catch (const CheckpointError& error) {
      logger.warn("{}", error.what());
    }
  }
  throw CheckpointError(fmt::format("no checkpoint in {1} can be read ({0} tried); {2}", files.size(), folder.string(), remedy));
}

// The checkpoint given by --resume: a file, or the newest one of a run directory or of a folder of checkpoints.
Checkpoint read_chosen(const fs::path& choice, Logger& logger) {
  if (!fs::is_directory(choice)) return {choice, checkpoint::load(choice)};
  const auto folder = checkpoint::find_in_run(
      choice, [](const fs::path& place) { return checkpoint::list_checkpoints(place).empty() ? fs::path() : place; });
  if (folder.empty()) throw UsageError(fmt::format("--resume {}: {}", choice.string(), checkpoint::kHoldsNoCheckpoint));
  return newest_readable(folder, "give another checkpoint with --resume", logger);
}

// Throws UsageError if the training of the checkpoint is complete, because a run that resumes from it would train nothing and report the
// results of the earlier run. `context`: the beginning of the message.
void refuse_complete_training(const Checkpoint& checkpoint, const TrainerOptions& options, const std::string& context) {
  const auto view = state::View(checkpoint.tree, checkpoint.file.string());
  const auto stored = view.find("early_stopping");
  const auto early_stopping = stored ? engine::read_early_stopping(*stored) : engine::EarlyStopping();
  if (early_stopping.is_over(options.loop.early_stopping)) {
    throw UsageError(
        fmt::format("{}: its training ended early, after {} without improvement; raise training.early_stopping.patience, or set "
                    "training.early_stopping: null, to train further",
                    context, counted(early_stopping.num_not_better, "consecutive validation")));
  }
  const auto& [epochs, steps] = std::tie(options.plan.epochs, options.plan.steps);
  const char* unit = epochs ? "epoch" : "step";
  const auto num_done = view.at(unit).integer();
  if (num_done < (epochs ? *epochs : steps.value())) return;
  throw UsageError(
      fmt::format("{}: its training of {} is complete; raise training.{}s to train further", context, counted(num_done, unit), unit));
}

// For a finished run: whether its configuration is the same, so that there is nothing to train. Throws UsageError if the run cannot be
// continued.
bool has_nothing_to_train(const RunDirectoryContents& contents, const std::string& choice, const fs::path& file, bool extend) {
  const auto path = contents.path.string();
  const auto& checkpoints = contents.checkpoints;
  // Without a configuration, the checkpoint tells whether there is something to train.
  if (!contents.changes && !checkpoints.empty()) return false;
  const auto changes = contents.changes.value_or(std::vector<config::Difference>());
  if (changes.empty()) {
    const bool is_of_its_end = choice == "auto" || (!checkpoints.empty() && checkpoints.front() == file);
    if (is_of_its_end) return true;
    throw UsageError(
        fmt::format("--resume {}: {} holds a finished run; choose another --run-dir to resume from this checkpoint", choice, path));
  }
  if (!extend && !only_trains_longer(changes)) {
    throw UsageError(
        fmt::format("{} holds a finished run with another configuration ({}); undo this change, choose another --run-dir, or set "
                    "training.extend: true to continue it with this configuration",
                    path, config::to_string(changes)));
  }
  if (checkpoints.empty()) {
    throw UsageError(fmt::format("{} holds a finished run, but no checkpoint from which to continue; choose another --run-dir", path));
  }
  return false;
}

}  // namespace

ResumeDecision decide_resume(const RunDirectoryContents& contents, const std::string& choice, const fs::path& file, bool extend) {
  using EarlierRun = run::RunDirectory::EarlierRun;
  const auto& path = contents.path;
  const auto& checkpoints = contents.checkpoints;
  const auto earlier_run = contents.earlier_run;
  if (choice == "none") {
    if (earlier_run == EarlierRun::kNone) return ResumeDecision::kStart;
    throw UsageError(fmt::format("--resume none: {} holds {} run, which is not overwritten; choose another --run-dir or remove the folder",
                                 path.string(), earlier_run == EarlierRun::kFinished ? "a finished" : "an unfinished"));
  }
  if (earlier_run == EarlierRun::kFinished && has_nothing_to_train(contents, choice, file, extend)) return ResumeDecision::kFinished;
  if (choice == "auto") {
    if (!checkpoints.empty()) return ResumeDecision::kResumeNewest;
    return earlier_run == EarlierRun::kNone ? ResumeDecision::kStart : ResumeDecision::kStartAgain;
  }
  const bool is_newest = !checkpoints.empty() && checkpoints.front() == file;
  if (earlier_run == EarlierRun::kNone || is_newest) return ResumeDecision::kResumeFile;
  const bool is_older = std::ranges::find(checkpoints, file) != checkpoints.end();
  throw UsageError(fmt::format("--resume {}: {} holds {}, which would be lost; choose another --run-dir{}", choice, path.string(),
                               is_older ? "newer checkpoints" : "another run", is_older ? ", or remove the newer ones" : ""));
}

RunStart choose_run_start(const run::RunDirectory& directory, const recipe::Recipe& recipe, Logger& logger) {
  const auto& choice = recipe.resume;
  const auto* values = recipe.record ? &recipe.record->values : nullptr;
  const auto folder = directory.checkpoint_folder();
  RunDirectoryContents contents{.path = directory.path(), .earlier_run = directory.earlier_run()};
  if (fs::exists(folder)) contents.checkpoints = checkpoint::list_checkpoints(fs::canonical(folder));
  const bool was_finished = contents.earlier_run == run::RunDirectory::EarlierRun::kFinished;
  if (was_finished && values != nullptr) {
    contents.changes = config::differences(values_of(read_file(directory.config_file()), directory.config_file().string()), *values);
    // This key only allows the run to continue; it does not change the training.
    std::erase_if(*contents.changes, [](const config::Difference& change) { return change.key == "training.extend"; });
  }
  std::optional<Checkpoint> chosen;
  if (choice != "auto" && choice != "none") chosen = read_chosen(choice, logger);
  const bool extend = recipe.record && recipe.record->experiment->training.extend;
  RunStart start{.decision = decide_resume(contents, choice, chosen ? fs::canonical(chosen->file) : fs::path(), extend)};
  switch (start.decision) {
    case ResumeDecision::kFinished:
      logger.info("{} holds a finished run (see {}); to train again, choose another --run-dir or remove the folder",
                  directory.path().string(), directory.summary_file().string());
      break;
    case ResumeDecision::kStart:
      break;
    case ResumeDecision::kStartAgain:
      logger.warn("the run in {} has no checkpoint, so it starts again from the first step", directory.path().string());
      break;
    case ResumeDecision::kResumeNewest:
    case ResumeDecision::kResumeFile:
      start.checkpoint = chosen ? std::move(*chosen) : newest_readable(folder, "choose another --run-dir, or remove the folder", logger);
      if (values != nullptr) check_configuration(*start.checkpoint, *values, logger);
      if (contents.earlier_run == run::RunDirectory::EarlierRun::kNone)
        refuse_complete_training(*start.checkpoint, recipe.options, "--resume " + start.checkpoint->file.string());
      if (was_finished) {
        refuse_complete_training(*start.checkpoint, recipe.options, directory.path().string() + " holds a finished run");
        logger.info("the finished run in {} continues from step {}", directory.path().string(),
                    state::View(start.checkpoint->tree, start.checkpoint->file.string()).at("step").integer());
      }
      break;
  }
  return start;
}

fs::path folder_of(const Checkpoint& checkpoint) { return fs::weakly_canonical(fs::absolute(checkpoint.file)).parent_path(); }

fs::path find_best(const Checkpoint& checkpoint, Logger& logger) {
  const auto step_of = [](const Checkpoint& file) { return state::View(file.tree, file.file.string()).at("step").integer(); };
  const auto best = state::View(checkpoint.tree, checkpoint.file.string()).find("best");
  if (!best || best->is_none()) return {};
  const auto step = best->at("step").integer();
  if (step == step_of(checkpoint)) return checkpoint.file;
  const auto folder = folder_of(checkpoint);
  for (const auto& file : {folder / checkpoint::checkpoint_name(step), folder / "best.pt"}) {
    try {
      if (fs::exists(file) && step_of({file, checkpoint::load(file)}) == step) return file;
    } catch (const CheckpointError& error) {
      logger.warn("{}", error.what());
    }
  }
  logger.warn("the checkpoint of the best validation so far, at step {}, is not in {}; there will be no best.pt until validation improves",
              step, folder.string());
  return {};
}

void discard_later_files(const run::RunDirectory& directory, const RunStart& start) {
  if (start.decision == ResumeDecision::kStartAgain) directory.clear();
  if (!start.checkpoint) return;
  // Otherwise the next start would treat the extended run as finished.
  if (directory.earlier_run() == run::RunDirectory::EarlierRun::kFinished) fs::remove(directory.summary_file());
  truncate_event_files(directory, *start.checkpoint);
  directory.remove_later_evaluations(state::View(start.checkpoint->tree, start.checkpoint->file.string()).at("step").integer());
}

void warn_of_other_threads(const Checkpoint& checkpoint, const std::vector<distributed::RankInfo>& ranks, Logger& logger) {
  const auto stored = state::View(checkpoint.tree, checkpoint.file.string()).find("num_threads");
  const auto then = stored ? stored->elements() : std::vector<state::View>();
  if (then.size() != ranks.size()) return;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (then[rank].integer() == ranks[rank].num_threads) continue;
    logger.warn(
        "{}: {} used {} until this checkpoint and uses {} from now on, so losses and weights will not be bit-identical to those of an "
        "uninterrupted run; set runtime.threads={} to continue with the same number",
        checkpoint.file.string(), ranks.size() == 1 ? "the run" : fmt::format("rank {}", rank), counted(then[rank].integer(), "thread"),
        ranks[rank].num_threads, then[rank].integer());
    return;
  }
}

void check_names(const state::Tree& tree, const std::string& file, const data::DatasetInfo& info, const char* class_remedy,
                 const char* target_remedy) {
  const auto classes = inference::read_names(tree, file, "class_names");
  if (!classes.empty() && classes != info.class_names) {
    const auto [was, is] = std::ranges::mismatch(classes, info.class_names);
    const auto describe = [](const auto& name, const auto& names) {
      return name == names.end() ? "missing" : fmt::format("\"{}\"", *name);
    };
    throw UsageError(fmt::format("{}: this network was trained on other classes: class {} was {} and is {} in the data now; {}", file,
                                 was - classes.begin(), describe(was, classes), describe(is, info.class_names), class_remedy));
  }
  const auto targets = inference::read_names(tree, file, "target_names");
  if (targets.empty() || info.target_names.empty() || targets == info.target_names) return;
  throw UsageError(fmt::format("{}: this network was trained on the targets {}, but the targets of the data are {} now; {}", file,
                               join(targets, ", "), join(info.target_names, ", "), target_remedy));
}

std::vector<DataDigest> data_digests(const ComponentConfig& sampler, const std::string& split_table) {
  const auto file = dynamic_cast<const data::SamplerOptions&>(*sampler.options).file();
  return {{"sampler_digest", file.empty() ? "" : c10::sha1(read_file(file)).str(), file + " has changed, so other samples would be drawn"},
          {"split_digest", split_table.empty() ? "" : samples::digest_of(split_table),
           "the training files or their division by dataset.split have changed (compare split.csv of its run)"}};
}

void check_data(const Checkpoint& checkpoint, const data::DatasetInfo& info, const std::vector<DataDigest>& digests) {
  const auto source = checkpoint.file.string();
  check_names(checkpoint.tree, source, info, kOtherData, kOtherData);
  for (const auto& [name, digest, change] : digests) {
    const auto stored = state::View(checkpoint.tree, source).find(name);
    if (stored && stored->text() != digest) throw UsageError(fmt::format("{}: since this checkpoint, {}; {}", source, change, kOtherData));
  }
}

Checkpoint broadcast(const fs::path& file, std::optional<Checkpoint> mine, const distributed::ProcessGroup& world) {
  std::string bytes;
  if (mine && world.size() > 1) {
    const MappedFile map(file);
    bytes.assign(map.bytes().begin(), map.bytes().end());
  }
  bytes = world.broadcast_bytes(bytes);
  if (mine) return std::move(*mine);
  return {file, checkpoint::load({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, file.string())};
}

}  // namespace trainer::session
