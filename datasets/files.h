#pragma once
// What the data sets that read files have in common.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "base/log.h"

namespace trainer::datasets {

// Also true when this cannot be determined; opening the file then reports the reason.
bool is_there(const std::filesystem::path& path);

// The default options of a data set, with the key `root`, whose files are in that folder.
template <class Options>
Options options_in(const std::filesystem::path& folder) {
  Options options;
  options.root = folder.string();
  return options;
}

// Whether Dataset::list() tells the size of that sample: of a thousand of them, spread evenly, because on a file system of a network it
// takes a message for each.
inline bool lists_size(int64_t index, int64_t num_samples) {
  constexpr int64_t kMostSizes = 1000;
  return index % ((num_samples + kMostSizes - 1) / kMostSizes) == 0;
}

// Asks the processor to load memory that is read soon. Into the second-level cache: the first accepts few requests at a time, so that the
// others would wait.
inline void prefetch_memory(const uint8_t* bytes, size_t count) {
  constexpr size_t kCacheLine = 64;
  for (size_t i = 0; i < count; i += kCacheLine) __builtin_prefetch(bytes + i, /*rw=*/0, /*locality=*/2);
}

// The content of a file in memory, which copies of this object share.
struct FileContent {
  std::filesystem::path path;
  std::shared_ptr<const void> owner;
  std::span<const uint8_t> bytes;
};

// Maps the file, or decompresses it if its name ends in .gz. Then `check` is called with what there is so far, again and again, and throws
// DataError if that is already too much or wrong: a few kilobytes may hold gigabytes. Throws DataError that names the file and the reason.
FileContent load_file(const std::filesystem::path& path, const std::function<void(std::span<const uint8_t>)>& check);

// Making a folder completely or not at all, by one process while others wait. Functions throw std::runtime_error with the reason.

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

// Decompression of what gzip and zip files hold.

enum class Deflated {
  kGzip,  // with the header and the checksum of gzip; several such members may follow each other
  kRaw,   // as in a zip file
};

// Decompresses all of `bytes` and passes the result to `take` part by part. Throws std::runtime_error with only the reason: the bytes are
// damaged, or end too early.
void inflate_all(std::span<const uint8_t> bytes, Deflated format, const std::function<void(std::span<const uint8_t>)>& take);

}  // namespace trainer::datasets
