#pragma once
// Decides whether a run starts at its first step or resumes from a checkpoint.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "config/differences.h"
#include "distributed/rendezvous.h"
#include "run/recipe/recipe.h"
#include "run/run_directory.h"
#include "trainer/component.h"
#include "trainer/distributed.h"
#include "trainer/state.h"

namespace trainer::session {

struct Checkpoint {
  std::filesystem::path file;
  state::Tree tree;
};

// What an earlier run left in a run directory.
struct RunDirectoryContents {
  std::filesystem::path path;
  run::RunDirectory::EarlierRun earlier_run = run::RunDirectory::EarlierRun::kNone;
  std::vector<std::filesystem::path> checkpoints = {};  // canonical, newest first
  // Of the configuration since a finished run; not set for a run without a file, which may train further.
  std::optional<std::vector<config::Difference>> changes = {};
};

enum class ResumeDecision {
  kStart,         // the directory holds no run: start at the first step
  kStartAgain,    // the earlier run saved no checkpoint: remove its files and start at the first step
  kResumeNewest,  // resume from the newest checkpoint of the directory that is readable
  kResumeFile,    // resume from the requested checkpoint
  kFinished,      // the directory holds a finished run of the same configuration: nothing to train
};

// A finished run is resumed if the only change of the configuration is a greater training.epochs or training.steps, or after any change if
// `extend`, the value of training.extend, is true. `choice` is the value of --resume: "auto", "none", or a checkpoint, whose canonical path
// is `file`. Reads no files. Throws UsageError if the choice would overwrite an earlier run, and if a finished run had another
// configuration.
ResumeDecision decide_resume(const RunDirectoryContents& contents, const std::string& choice, const std::filesystem::path& file = {},
                             bool extend = false);

struct RunStart {
  ResumeDecision decision = ResumeDecision::kStart;
  std::optional<Checkpoint> checkpoint = {};  // to resume from
};

// To be called on the rank that holds the lock of the run directory, which is not changed. Decides, reads the checkpoint, checks that it
// belongs to a run with this configuration and logs allowed differences. Throws UsageError like decide_resume(), if the checkpoint belongs
// to another run, and if a new or an extended run would have nothing to train; CheckpointError if no checkpoint can be read.
RunStart choose_run_start(const run::RunDirectory& directory, const recipe::Recipe& recipe, Logger& logger);
// The folder of the checkpoint, even if the file has been removed meanwhile. Throws std::filesystem::filesystem_error.
std::filesystem::path folder_of(const Checkpoint& checkpoint);
// For a checkpoint outside the run directory: the file with the parameters of the best validation until the checkpoint, which is the
// checkpoint itself or another file in its folder. Empty if there was no validation, or if this file is missing or cannot be read. Throws
// std::filesystem::filesystem_error.
std::filesystem::path find_best(const Checkpoint& checkpoint, Logger& logger);
// To be called on the rank that holds the lock, after all checks: removes what the earlier run wrote after the checkpoint to resume from,
// or, if the run starts again, all files of the earlier run except logs.
void discard_later_files(const run::RunDirectory& directory, const RunStart& start);

// Logs a warning if the number of ranks is the same but a rank used another number of threads before the checkpoint, because the exact
// results on a CPU depend on it. `ranks`: of this run, by rank.
void warn_of_other_threads(const Checkpoint& checkpoint, const std::vector<distributed::RankInfo>& ranks, Logger& logger);

// Throws UsageError if the names of the classes or of the targets on which the network in `file` was trained differ from those of the data;
// a file without names is accepted. The remedies: what to do.
void check_names(const state::Tree& tree, const std::string& file, const data::DatasetInfo& info, const char* class_remedy,
                 const char* target_remedy);

// A digest of something besides the configuration on which the order of the samples depends.
struct DataDigest {
  const char* name;    // in checkpoints
  std::string digest;  // empty: nothing
  std::string change;  // for messages: "x.csv has changed"
};
// Of the file that the sampler uses, such as weights, and of split_table(). Throws Error if the file cannot be read.
std::vector<DataDigest> data_digests(const ComponentConfig& sampler, const std::string& split_table);
// Throws UsageError if the run of the checkpoint had other names or digests.
void check_data(const Checkpoint& checkpoint, const data::DatasetInfo& info, const std::vector<DataDigest>& digests);

// Collective: sends the checkpoint of rank 0 to all ranks. Only rank 0 reads `file` and passes `mine`.
Checkpoint broadcast(const std::filesystem::path& file, std::optional<Checkpoint> mine, const distributed::ProcessGroup& world);

}  // namespace trainer::session
