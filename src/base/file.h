#pragma once
// Files. Unless a comment says otherwise, a failure throws an Error that names the path and the system's reason, and anything but a regular
// file is refused without waiting.

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/signal.h"

namespace trainer {

// Owns a file descriptor and closes it on destruction; -1: none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int number() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

// The most bytes that a file may have: ulimit -f, or 4 GiB (FAT). Empty: no limit is known.
std::optional<uint64_t> largest_size_of(const Descriptor& file);

// Writes all of `bytes`. On failure returns false; errno then holds the reason and `bytes` the part not yet written.
inline bool write_all(int descriptor, std::string_view& bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// On failure the descriptor is -1 and errno holds the reason; errno is 0 if the path is not a regular file (see describe_irregular()).
Descriptor open_regular_file(const std::filesystem::path& path, int flags, mode_t mode = 0666);
// Returns "it is a pipe, not a regular file", for example; empty if the path names a regular file or does not exist.
std::string describe_irregular(const std::filesystem::path& path);

std::string read_file(const std::filesystem::path& path);
// Reads a file into `buffer`, which grows if needed. Throws std::runtime_error with only the reason, also for an empty file and for one of
// more than 1 GiB.
std::span<const uint8_t> read_bytes(const std::string& path, std::vector<uint8_t>& buffer);
// Throws Error also for more than `max_bytes`, for a pipe that no program opens for writing within about five seconds, and, with
// ExitCode::kStopped, for a stop request during the wait for a pipe.
std::string read_file_or_pipe(const std::filesystem::path& path, size_t max_bytes);
// The name of the standard input in messages.
inline constexpr const char* kStandardInputName = "<standard input>";
// Reads the standard input to its end. Throws Error also for more than `max_bytes`, and for a stop request like read_file_or_pipe().
std::string read_standard_input(size_t max_bytes);

// Other processes see the old file or the new one, which is then on the disk, never a part.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

class Output {
 public:
  virtual ~Output() = default;
  virtual void write(std::string_view bytes) = 0;
};

// Writes a temporary file beside the path, which commit() renames.
class AtomicFile final : public Output {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  // Removes the temporary file unless commit() has succeeded, as does a stop signal (exit_on_stop_signals()).
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

// Flushes the folder to the disk, so that added and removed names survive a power failure. Failures are ignored.
void flush_folder(const std::filesystem::path& path);

// Appends whole lines without a buffer. If only a part of a line can be written, that part is removed again.
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

// A read-only memory map of a whole file.
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

// Records the file or folder that the main thread is using, so that other threads can report it if the file system does not respond. A
// nested object replaces the outer one while it exists. Does nothing on other threads.
class FileAccess {
 public:
  // `action`: "reading", "opening the run directory".
  FileAccess(const char* action, const std::filesystem::path& path);
  ~FileAccess();
  FileAccess(const FileAccess&) = delete;
  FileAccess& operator=(const FileAccess&) = delete;

 private:
  bool is_main_thread_;
  std::string before_;
};

struct CurrentFileAccess {
  std::string text;          // "reading runs/a/config.yaml"; empty: the main thread uses no file
  uint64_t num_changes = 0;  // how often `text` has changed so far
  std::chrono::steady_clock::time_point since = {};
};
CurrentFileAccess current_file_access();

// The reason why `path` (a file or a folder) could not be created or written, with remedies for a read-only file system or a permission
// error. `remedy` is the first of them; it may be empty.
std::string explain_refusal(const std::filesystem::path& path, const std::error_code& error, const std::string& remedy = "");

// The file that a user names for a result (--output). A new or a regular file is written atomically, and a link to it stays a link; a pipe,
// a character device and the standard output or error are written directly. Throws UsageError for anything else.
class OutputFile final : public Output {
 public:
  explicit OutputFile(const std::filesystem::path& path);

  void write(std::string_view bytes) override;
  void commit();

 private:
  std::filesystem::path path_;
  std::optional<AtomicFile> file_;
  Descriptor in_place_;
};

// Whether `path` names the same file, pipe or device as the standard output.
bool is_standard_output(const std::filesystem::path& path);

void write_output_file(const std::filesystem::path& path, std::string_view content);

}  // namespace trainer
