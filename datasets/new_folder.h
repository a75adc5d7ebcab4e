#pragma once
// Making a folder completely or not at all, by one process while others wait. Functions throw std::runtime_error with the reason.

#include <filesystem>
#include <string>

#include "base/descriptor.h"
#include "base/log.h"

namespace trainer::datasets {

// An exclusive lock among the processes that may make or remove a folder: an flock on a file that exists only while the lock is held, so
// that it ends with its process.
class FolderLock {
 public:
  // Waits until the current holder releases it. `activity`: what that process does, for the log: "downloads URL". Throws Error with
  // ExitCode::kStopped after a stop request.
  FolderLock(std::filesystem::path file, const std::string& activity, Logger& logger);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  bool try_lock();

  std::filesystem::path path_;
  Descriptor file_;
};

// An empty folder for everything unfinished; what a killed process has left there is removed. The destructor removes it.
class PartialFolder {
 public:
  explicit PartialFolder(std::filesystem::path path);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Flushes all files to the disk by one call, because a data set can have a hundred thousand.
void flush_file_system(const std::filesystem::path& folder);
// Flushes the folder's files and moves it to `target`, whose parent folder is created.
void put_into_place(const std::filesystem::path& folder, const std::filesystem::path& target);

void create_folders(const std::filesystem::path& folder);
// "cannot ACTION PATH: the reason in errno".
[[noreturn]] void fail_with_errno(const std::string& action, const std::filesystem::path& path);

}  // namespace trainer::datasets
