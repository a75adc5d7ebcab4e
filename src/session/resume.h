#pragma once
// Where a run begins: at its first step, or at a checkpoint.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "distributed/process_group.h"
#include "run/run_directory.h"
#include "state/tree.h"

namespace trainer::session {

struct Checkpoint {
  std::filesystem::path file;
  state::Tree tree;
};

// What a run directory holds of an earlier run.
struct RunDirectoryContents {
  std::filesystem::path path;
  run::RunDirectory::Earlier earlier = run::RunDirectory::Earlier::kNothing;
  std::vector<std::filesystem::path> checkpoints;  // canonical, newest first
};

enum class ResumeDecision {
  kStart,         // an empty directory: begin at the first step
  kStartAgain,    // an earlier run saved nothing: remove what it measured and begin at the first step
  kResumeNewest,  // resume from the newest checkpoint of the directory that can be read
  kResumeFile,    // resume from the checkpoint that was asked for
  kFinished,      // the directory holds a finished run: nothing to train
};

// `choice`: the value of --resume: "auto", "none", or a checkpoint, whose canonical path is `file` then. Reads no file. Throws UsageError
// when the choice would overwrite an earlier run.
ResumeDecision decide_resume(const RunDirectoryContents& contents, const std::string& choice, const std::filesystem::path& file = {});

struct RunStart {
  bool is_finished = false;
  std::optional<Checkpoint> checkpoint = {};  // to resume from
};

// On the rank that holds the run directory. Decides, reads the checkpoint, checks that its run had a configuration like `config_text`
// and logs the other differences, and removes from the directory what was measured after the checkpoint. Throws UsageError as
// decide_resume() does and when the checkpoint belongs to another run, and CheckpointError when no checkpoint can be read.
RunStart prepare_run_start(const run::RunDirectory& directory, const std::string& choice, const std::string& config_text, Logger& logger);

// Collective: gives all ranks the checkpoint of rank 0, the only rank that needs the file. `mine`: on rank 0.
Checkpoint share(const std::filesystem::path& file, std::optional<Checkpoint> mine, const distributed::ProcessGroup& world);

}  // namespace trainer::session
