#pragma once
// Files: whole reads, writes that are complete or absent, appends, and read-only maps. Every failure is an Error that names the
// path and the system's reason.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace trainer {

std::string read_file(const std::filesystem::path& path);

// Written to a temporary name beside `path`, flushed to the disk, renamed, and the folder flushed: a reader sees the old file or
// the new one, never a part.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// The same for what does not come at once.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  // Without commit(), nothing is left.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Descriptor file_;
  bool committed_ = false;
};

// Opens `path`, created with `mode` where it is missing, and takes an exclusive lock (flock) on it, which ends with the descriptor. Does
// not wait. On failure the descriptor is -1 and errno holds the reason: EWOULDBLOCK when another process holds the lock.
Descriptor lock_file(const std::filesystem::path& path, mode_t mode);

// Makes names that were added to the folder, or removed, outlive a loss of power.
void flush_folder(const std::filesystem::path& path);

// Appends whole lines; each is handed to the system before write_line returns. What cannot be written whole is not there at all.
class LineFile {
 public:
  explicit LineFile(const std::filesystem::path& path);

  // `line` without its newline.
  void write_line(std::string_view line);
  void write(std::string_view bytes);

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

// A read-only memory map of a whole file; pages are shared between the processes of a machine.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trainer
