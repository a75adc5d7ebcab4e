#pragma once
// The folder of one run: the names of its files, its lock, and the writing that one process alone may do.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/descriptor.h"

namespace trainer::run {

// The log of a rank other than 0, which has no part in the lock.
inline std::filesystem::path rank_log_file(const std::filesystem::path& run_directory, int rank) {
  return run_directory / ("rank_" + std::to_string(rank) + ".log");
}

class RunDirectory {
 public:
  // Creates the folder where needed and takes its lock, which ends with the object or the process. Throws UsageError when another
  // process holds the lock (naming process, host and since when), and Error when the folder cannot be written.
  explicit RunDirectory(const std::filesystem::path& path);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Who held the lock before and was ended while it did: "process 31 on host-a since 2026-01-31 12:00:00 +0000"; empty: nobody.
  const std::string& left_by() const { return left_by_; }
  std::filesystem::path config_file() const { return path_ / "config.yaml"; }
  std::filesystem::path environment_file() const { return path_ / "environment.json"; }
  std::filesystem::path log_file() const { return path_ / "train.log"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path metrics_table_file() const { return path_ / "metrics.csv"; }
  std::filesystem::path checkpoint_folder() const { return path_ / "checkpoints"; }
  std::filesystem::path tensorboard_folder() const { return path_ / "tensorboard"; }
  // A folder for each step that was kept because it was not finite.
  std::filesystem::path non_finite_folder() const { return path_ / "non_finite"; }
  std::filesystem::path summary_file() const { return path_ / "summary.json"; }

  // What an earlier run left here; nothing, when it ended before it had begun to measure.
  enum class Earlier { kNothing, kUnfinished, kFinished };
  Earlier earlier() const;
  // Removes what an unfinished run has measured; its logs are continued.
  void clear() const;

  // The files that events are written to, by their names in the folder, with their sizes in bytes.
  std::map<std::string, uint64_t> event_files() const;
  // Takes away what has been written to them since then; files that were not there yet are removed.
  void cut_back(const std::map<std::string, uint64_t>& event_files) const;

 private:
  std::filesystem::path path_;
  Descriptor lock_;
  std::string left_by_;
};

}  // namespace trainer::run
