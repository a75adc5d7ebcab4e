#pragma once
// Files: whole reads, atomic writes, appends, and read-only memory maps. Every failure throws an Error that names the path and the
// system's reason. Only regular files are used: opening anything else (a folder, pipe, socket or device) fails without waiting for it.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/signal.h"

namespace trainer {

// Opens a regular file with the flags of open(2) and, if they create it, `mode`. On failure the descriptor is -1 and errno holds the
// reason; it is 0 if the path names something else, which describe_irregular() describes.
Descriptor open_regular_file(const std::filesystem::path& path, int flags, mode_t mode = 0666);
// "it is a pipe, not a regular file"; empty if the path names a regular file, or nothing.
std::string describe_irregular(const std::filesystem::path& path);

std::string read_file(const std::filesystem::path& path);
// Reads a regular file, or a pipe until its writers have closed it, of at most `max_bytes`. While a pipe has nothing to read, a stop
// request ends the call by an Error with ExitCode::kStopped.
std::string read_file_or_pipe(const std::filesystem::path& path, size_t max_bytes);

// Writes a temporary file beside `path`, flushes it to the disk, renames it to `path` and flushes the folder: a reader sees the old file
// or the new one, never a part.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Receives the bytes of a file that is written in parts; each call continues where the last one ended.
class Output {
 public:
  virtual ~Output() = default;
  virtual void write(std::string_view bytes) = 0;
};

// Writes a file atomically, in parts.
class AtomicFile final : public Output {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  // Without commit(), removes the temporary file. So does a stop signal that ends the process (exit_on_stop_signals()).
  ~AtomicFile() override;

  void write(std::string_view bytes) override;
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  RemovedOnExit removed_on_exit_;
  Descriptor file_;
  bool committed_ = false;
};

// Opens `path` (created with `mode` if missing) and takes an exclusive lock (flock) on it, which is released with the descriptor. Does not
// wait. On failure the descriptor is -1 and errno holds the reason: EWOULDBLOCK when another process holds the lock. Throws Error when the
// path names anything but a regular file.
Descriptor lock_file(const std::filesystem::path& path, mode_t mode);

// Flushes the folder to the disk, so that added and removed names survive a power failure. Failures are ignored.
void flush_folder(const std::filesystem::path& path);

// Appends whole lines; each has been passed to the system when write_line returns. A line that cannot be written whole is removed again.
class LineFile {
 public:
  explicit LineFile(const std::filesystem::path& path);

  // `line`: without its newline.
  void write_line(std::string_view line);
  void write(std::string_view bytes);

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

// A read-only memory map of a whole file; its pages are shared between the processes of a host.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);

  std::span<const uint8_t> bytes() const { return {data_.get(), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::shared_ptr<const uint8_t> data_;  // the map, which copies of this object share
  size_t size_ = 0;
};

}  // namespace trainer
