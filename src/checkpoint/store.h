#pragma once
// The checkpoint folder of a run: numbered files, which are written atomically, and links to the newest and the best one (hard links or
// copies on a file system without symbolic links).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "base/written_files.h"
#include "trainer/state.h"

namespace trainer::checkpoint {

// The end of error messages about a folder.
inline constexpr const char* kHoldsNoCheckpoint =
    "this folder contains no checkpoint; give the folder of a run that has saved one, or a file";

inline std::filesystem::path folder_of_run(const std::filesystem::path& run_directory) { return run_directory / "checkpoints"; }

// `folder`: a run directory, or a folder of checkpoints. The first result of `find` for the places where checkpoints may be that is not
// empty.
std::filesystem::path find_in_run(const std::filesystem::path& folder,
                                  const std::function<std::filesystem::path(const std::filesystem::path& place)>& find);

// `path`, or if it is a run directory or its folder of checkpoints, the best or else the newest one there. Throws CheckpointError.
std::filesystem::path checkpoint_of(const std::filesystem::path& path);

// The numbered files of a folder, newest first.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);

// "step_00001950.pt"
std::string checkpoint_name(int64_t step);

// The result of a write.
struct Written {
  uint64_t num_bytes = 0;                      // the size of the file
  std::vector<std::filesystem::path> removed;  // older checkpoints
};

// Writes the checkpoints. Only one process of a run may have a Store.
class Store {
 public:
  // Creates the folder if needed, removes incomplete files that a killed process has left, and tries what write() needs. Throws
  // CheckpointError. The store adds to `files`, which must outlive it, each checkpoint that it writes, and removes only checkpoints that
  // `files` contains; if it is null, all may be removed.
  Store(std::filesystem::path folder, int64_t keep_last, WrittenFiles* files = nullptr);

  // Why symbolic links cannot be created in the folder; 0: they can.
  const std::error_code& link_error() const { return link_error_; }
  // The most bytes that a file in the folder may have; empty: no limit is known.
  const std::optional<uint64_t>& largest_file() const { return largest_file_; }
  // "<folder>/step_00001950.pt".
  std::filesystem::path file_of(int64_t step) const;
  // Writes step_….pt durably and links last.pt to it, and also best.pt if `is_best`. Then removes older checkpoints except the best one, so
  // that `keep_last` complete ones remain, besides those of later steps, which a run that resumed from an earlier one could not read. The
  // tensors must be on the CPU. If this throws Error, the previous checkpoints still exist.
  Written write(const state::Tree& tree, int64_t step, bool is_best);
  // The second part of write(), for a file whose process may have been killed before it. Throws CheckpointError.
  std::vector<std::filesystem::path> link_written(int64_t step, bool is_best);
  // Returns false if best.pt exists. Otherwise creates it as a hard link to `file`, which is in another folder, or as a copy. Throws
  // std::filesystem::filesystem_error.
  bool set_first_best(const std::filesystem::path& file) const;

 private:
  void link(const char* name, const std::filesystem::path& target) const;
  std::filesystem::path temporary_of(const char* name) const;
  std::vector<std::filesystem::path> remove_old(int64_t step);

  std::filesystem::path folder_;
  int64_t keep_last_;
  WrittenFiles* files_;
  std::error_code link_error_;
  std::optional<uint64_t> largest_file_;
  std::set<std::filesystem::path> complete_;  // files that are known to be complete
};

}  // namespace trainer::checkpoint
