#pragma once
// The checkpoint folder of a run: numbered files, each complete or absent, and links to the newest and to the best one.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/written_files.h"
#include "trainer/state.h"

namespace trainer::checkpoint {

// The numbered files of a folder, newest first; empty if the folder does not exist.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);

// "step_00001950.pt"
std::string checkpoint_name(int64_t step);

// What a write has done.
struct Written {
  uint64_t num_bytes = 0;                      // the size of the file
  std::vector<std::filesystem::path> removed;  // older checkpoints
};

// Writes the checkpoints. Only one process of a run may have a Store.
class Store {
 public:
  // Creates the folder if needed, and removes incomplete files that a killed process has left. Throws CheckpointError if nothing can be
  // written there. `files`, which must outlive the store, gets the name of each file; only checkpoints that it contains are removed. Null:
  // the folder has no others.
  Store(std::filesystem::path folder, int64_t keep_last, WrittenFiles* files = nullptr);

  // "<folder>/step_00001950.pt".
  std::filesystem::path file_of(int64_t step) const;
  // Writes step_….pt durably and links last.pt to it, and best.pt if it `is_best`; then removes older checkpoints but the best and so many
  // that `keep_last` complete ones are left. Those of later steps, which a run that resumed from an earlier one could not read, are not
  // counted and stay. The tensors must be on the CPU. If it throws Error, the previous checkpoints still exist.
  Written write(const state::Tree& tree, int64_t step, bool is_best);
  // After the file of that step was written, perhaps by a process that was killed before it could do this: links to it as write() does and
  // removes older checkpoints, which it returns. Throws CheckpointError.
  std::vector<std::filesystem::path> link_written(int64_t step, bool is_best);
  // Unless there is a best.pt: makes it the same file as `file`, in another folder, or a copy where that is not possible. Returns false if
  // there is one. Throws std::filesystem::filesystem_error.
  bool set_first_best(const std::filesystem::path& file) const;

 private:
  void link(const char* name, const std::filesystem::path& target) const;
  std::filesystem::path temporary_of(const char* name) const;
  std::vector<std::filesystem::path> remove_old(int64_t step);

  std::filesystem::path folder_;
  int64_t keep_last_;
  WrittenFiles* files_;
  std::set<std::filesystem::path> complete_;  // the files that were found to be complete
};

}  // namespace trainer::checkpoint
