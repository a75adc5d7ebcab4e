#pragma once
// The folder of a run's checkpoints: numbered files, each of them complete or absent, and links to the newest and to the best one.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "state/tree.h"

namespace trainer::checkpoint {

// The numbered files of a folder, the newest first; none where there is no folder.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);

// Belongs to one process of a run.
class Store {
 public:
  // Creates the folder where needed, and removes what a process that was killed has left half written. Throws CheckpointError when
  // nothing can be written there.
  Store(std::filesystem::path folder, int64_t keep_last);

  // "<folder>/step_00001950.pt".
  std::filesystem::path file_of(int64_t step) const;
  // Writes step_….pt, durably, and the link last.pt to it, and where it `is_best` best.pt; then removes all but the `keep_last` newest ones
  // and the best one. The tensors are on the CPU. Throws Error, with the checkpoints that were there before still there. Returns the size
  // in bytes.
  uint64_t write(const state::Tree& tree, int64_t step, bool is_best) const;

 private:
  void link(const char* name, const std::filesystem::path& target) const;
  void remove_old() const;

  std::filesystem::path folder_;
  int64_t keep_last_;
};

}  // namespace trainer::checkpoint
