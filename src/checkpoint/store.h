#pragma once
// The checkpoint folder of a run: numbered files, each complete or absent, and links to the newest and to the best one.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "state/tree.h"

namespace trainer::checkpoint {

// The numbered files of a folder, newest first; empty if the folder does not exist.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);

// Writes the checkpoints. Only one process of a run may have a Store.
class Store {
 public:
  // Creates the folder if needed, and removes incomplete files that a killed process has left. Throws CheckpointError if nothing can be
  // written there.
  Store(std::filesystem::path folder, int64_t keep_last);

  // "<folder>/step_00001950.pt".
  std::filesystem::path file_of(int64_t step) const;
  // Writes step_….pt durably and links last.pt to it, and best.pt if it `is_best`; then removes all checkpoints but the `keep_last` newest
  // and the best. The tensors must be on the CPU. If it throws Error, the previous checkpoints still exist. Returns the size in bytes.
  uint64_t write(const state::Tree& tree, int64_t step, bool is_best) const;

 private:
  void link(const char* name, const std::filesystem::path& target) const;
  void remove_old() const;

  std::filesystem::path folder_;
  int64_t keep_last_;
};

}  // namespace trainer::checkpoint
