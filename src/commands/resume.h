#pragma once
// Where a run begins: at its first step, or at a checkpoint.

#include <filesystem>
#include <optional>
#include <string>

#include "base/log.h"
#include "config/experiment.h"
#include "distributed/process_group.h"
#include "run/run_directory.h"
#include "state/tree.h"

namespace trainer::commands {

struct Checkpoint {
  std::filesystem::path file;
  state::Tree tree;
};

struct Beginning {
  bool is_finished = false;                   // nothing is left to do, which was said
  std::optional<Checkpoint> checkpoint = {};  // to go on from
};

// On the rank that holds the run directory. `choice`: "auto" (the newest good checkpoint, if there is one), "none", or a checkpoint's
// file. Makes the directory ready for what comes next: what was measured after the checkpoint is taken away. Checks that the
// checkpoint belongs to a run like this one, `config_text`, and says what else has changed since. Throws UsageError when a run would be
// overwritten, or has become another one, and CheckpointError when no checkpoint can be read.
Beginning choose_beginning(const run::RunDirectory& directory, const std::string& choice, const std::string& config_text, Logger& logger);

// Collective: gives all ranks the checkpoint of rank 0, where alone its file need be. `mine`: on rank 0.
Checkpoint share(const std::filesystem::path& file, std::optional<Checkpoint> mine, const distributed::ProcessGroup& world);

}  // namespace trainer::commands
