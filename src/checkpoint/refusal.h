#pragma once
// Refuses a file with a message of one sentence: the file, what is wrong with it, and what to do.

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"

namespace trainer::checkpoint {

// Throws CheckpointError: "<source>: <what>; <fix>".
[[noreturn]] void refuse(std::string_view source, std::string_view what, std::string_view fix);
inline constexpr const char* kDamagedFix = "the file is damaged: copy it again from an intact file, or save it again";
// Throws CheckpointError for content that no correct writer produces; the message says that the file is damaged.
[[noreturn]] void refuse_damaged(std::string_view source, std::string_view what);

// Throws CheckpointError if the file is missing or cannot be read.
MappedFile map_file(const std::filesystem::path& path);

// The most memory that reading a file may allocate, because a few bytes of a hostile file can request a lot: 4 * file_size +
// min(64 * file_size, 16 MiB), the second term for files with many small values.
size_t max_allocation(size_t file_size);

// Counts the bytes that are allocated while one file is read.
class Budget {
 public:
  Budget(size_t file_size, std::string source);

  // Throws CheckpointError if the sum of all calls would exceed max_allocation().
  void take(size_t bytes);
  // Like take(count * size); throws also if the product overflows.
  void take(size_t count, size_t size);
  size_t limit() const { return limit_; }

 private:
  std::string source_;
  size_t limit_;
  size_t left_;
};

}  // namespace trainer::checkpoint
