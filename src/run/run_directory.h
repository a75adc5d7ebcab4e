#pragma once
// The folder of one run: the names of its files, its lock, and the operations that need the lock.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "base/written_files.h"
#include "checkpoint/store.h"

namespace trainer::run {

// The log of a rank other than 0; these ranks do not take the lock. Throws Error if the file is a symbolic link.
std::filesystem::path rank_log_file(const std::filesystem::path& run_directory, int rank);
// Whether `file`, relative to the folder of a run, is one that runs write there.
bool is_file_of_run(const std::filesystem::path& file);

class RunDirectory {
 public:
  // Creates the folder if needed and takes its lock, which is held until the object is destroyed or the process ends. Throws UsageError
  // when another process holds the lock (with the process, its host and the time at which it took the lock), and when the folder contains
  // files that are named like a run's files but were not written by a run. Throws Error when the folder cannot be written, or when a file
  // or folder that runs write in place is a symbolic link, which could lead anywhere.
  explicit RunDirectory(const std::filesystem::path& path, const FileLock::Options& options = {});
  // If the constructor made the run directory: removes its logs, and also the folders that the constructor made if they contain only the
  // lock and the list. The object must not be used afterwards.
  void discard();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // To be called before anything is written: throws UsageError when another run has taken the folder, which is possible after the folder or
  // the lock file was removed, and after this process did not renew its lease. Accepts a missing folder, because writing into it fails.
  void check_lock() const;

  const std::filesystem::path& path() const { return path_; }
  // The process that has not released the lock, and how that was found out: "process 31 on host-a since 2026-01-31 12:00:00 +0000, which
  // ended without releasing it". Empty: none.
  const std::string& earlier_holder() const { return lock_->other(); }
  std::filesystem::path config_file() const { return path_ / "config.yaml"; }
  std::filesystem::path environment_file() const { return path_ / "environment.json"; }
  // The names of the data set's classes, one per line, if they have names.
  std::filesystem::path class_names_file() const { return path_ / "classes.txt"; }
  std::filesystem::path split_file() const { return path_ / "split.csv"; }
  std::filesystem::path log_file() const { return path_ / "train.log"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path metrics_table_file() const { return path_ / "metrics.csv"; }
  std::filesystem::path checkpoint_folder() const { return checkpoint::folder_of_run(path_); }
  std::filesystem::path tensorboard_folder() const { return path_ / "tensorboard"; }
  // The trace of logging.profile_steps.
  std::filesystem::path profile_file() const { return path_ / "profile.json"; }
  // Contains a folder for each saved step whose loss or gradients were not finite.
  std::filesystem::path non_finite_folder() const { return path_ / "non_finite"; }
  // The result of the latest validation, if the task has classes or numbers.
  std::filesystem::path evaluation_file() const { return path_ / "evaluation.json"; }
  // The result of the best validation, whose checkpoint is best.pt.
  std::filesystem::path best_evaluation_file() const { return path_ / "best_evaluation.json"; }
  // The results of `trainer calibrate`.
  std::filesystem::path calibration_file() const { return path_ / "calibration.json"; }
  std::filesystem::path summary_file() const { return path_ / "summary.json"; }
  // To be called before any of the files above except the logs is written: adds their names to written_files().
  void begin() const;
  // The list of files that runs have written here. Checkpoints, event files and non-finite steps must be added before they are written;
  // files in their folders that are not in this list are neither changed nor removed.
  WrittenFiles& written_files() const { return *written_files_; }

  // Whether an earlier run in this folder has finished; kNone also if it ended before it wrote metrics or checkpoints.
  enum class EarlierRun { kNone, kUnfinished, kFinished };
  EarlierRun earlier_run() const;
  // Removes all files that an unfinished run has written, except its logs, which are appended to.
  void clear() const;

  // The metrics and TensorBoard files: their paths relative to the folder and their sizes in bytes.
  std::map<std::string, uint64_t> event_files() const;
  // Truncates these files to the sizes in `event_files`, the result of an earlier event_files(); removes files that are missing there.
  void truncate_event_files(const std::map<std::string, uint64_t>& event_files) const;
  // Removes the results of validations and of `trainer calibrate` after this step, and results that cannot be read.
  void remove_later_evaluations(int64_t step) const;

 private:
  std::filesystem::path lock_path() const { return path_ / ".lock"; }
  std::filesystem::path list_path() const { return path_ / ".trainer_run"; }
  std::vector<std::filesystem::path> named_files() const;
  void claim() const;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> new_folders_;  // made by the constructor: path_ and its parents, innermost first
  std::optional<FileLock> lock_;
  std::unique_ptr<WrittenFiles> written_files_;
};

}  // namespace trainer::run
