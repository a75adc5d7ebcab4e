#pragma once
// Helpers for data sets that read files.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "trainer/dataset.h"
#include "trainer/error.h"
#include "trainer/keys.h"

namespace trainer::datasets {

// Whether the path exists. Also true if this cannot be determined; opening the file then reports the reason.
bool is_there(const std::filesystem::path& path);

// Calls `act`. If it throws a std::runtime_error that is not an Error, throws a Thrown that begins with `prefix`.
template <class Thrown, class Act>
auto with_prefix(const std::string& prefix, const Act& act) {
  try {
    return act();
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw Thrown(prefix + ": " + reason.what());
  }
}

// The default options of a data set that has the key `root`, which is set to `folder`.
template <class Options>
Options options_in(const std::filesystem::path& folder) {
  Options options;
  options.root = folder.string();
  return options;
}

// If the factory's `missing` is set, makes its open() and locate() throw it as a DataError.
data::DatasetFactory refuse_missing(data::DatasetFactory factory);

// Adds the key `root`, the place of a data set's files.
void describe_root(KeyTable& keys, std::string& root, const std::string& doc);

// A data set of images of one size that are in memory.
class ImagesInMemory : public data::Dataset {
 public:
  struct Image {
    const uint8_t* pixels;
    uint8_t label;
  };
  // `files`: owns the pixels, [channels][height][width].
  ImagesInMemory(data::DatasetInfo info, std::shared_ptr<const void> files, std::vector<Image> images)
      : info_(std::move(info)), files_(std::move(files)), images_(std::move(images)) {}

  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return static_cast<int64_t>(images_.size()); }
  data::Sample read(int64_t index, data::Scratch& scratch) const override;
  std::optional<int64_t> num_bytes(int64_t) const override { return 0; }
  void prefetch(int64_t index) const override;

 private:
  data::DatasetInfo info_;
  std::shared_ptr<const void> files_;
  std::vector<Image> images_;
};

// Functions to make a folder completely or not at all, by one process while others wait. They throw std::runtime_error with the reason.

// An exclusive lock among the processes that may make or remove a folder, with a file that exists only while the lock is held.
class FolderLock {
 public:
  // Waits until the process that holds the lock releases it. `activity`: what that process does, for the log, such as "downloads URL".
  // Throws Error with ExitCode::kStopped after a stop request.
  FolderLock(std::filesystem::path file, const std::string& activity, Logger& logger);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  bool try_lock(Logger* logger);

  std::filesystem::path path_;
  std::optional<FileLock> lock_;
};

// An empty folder for unfinished files; leftovers of a killed process are removed. The destructor removes the folder.
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

// Flushes all files of the folder's file system to the disk with one call, because a data set can have a hundred thousand files.
void flush_file_system(const std::filesystem::path& folder);
// Flushes the folder's files and moves it to `target`, whose parent folder is created.
void put_into_place(const std::filesystem::path& folder, const std::filesystem::path& target);

void create_folders(const std::filesystem::path& folder);
// Throws "cannot ACTION PATH: REASON" with the reason from errno.
[[noreturn]] void fail_with_errno(const std::string& action, const std::filesystem::path& path);
// Opens a file with the flags of open(), and throws like fail_with_errno().
Descriptor open_file(const std::filesystem::path& path, int flags, const char* action);

// Decompression of the content of gzip and zip files.

enum class Deflated {
  kGzip,  // with gzip's header and checksum; there may be several such members
  kRaw,   // as in a zip file
};

// Decompresses all of `bytes` and passes the result to `take` in parts. Throws std::runtime_error with only the reason if the bytes are
// damaged or end too early.
void inflate_all(std::span<const uint8_t> bytes, Deflated format, const std::function<void(std::span<const uint8_t>)>& take);

}  // namespace trainer::datasets
