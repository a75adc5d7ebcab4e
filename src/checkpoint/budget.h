#pragma once
// How much memory reading a file may take: few bytes of a file can ask for much.

#include <cstddef>
#include <string>

namespace trainer::checkpoint {

// Four times the file's size; and, so that small files may hold small values, 64 times its size, at most 16 MiB, beside that.
size_t max_allocation(size_t file_size);

// Counts what a reader is about to allocate.
class Budget {
 public:
  Budget(size_t file_size, std::string source);

  // Throws CheckpointError where it would be more than max_allocation().
  void take(size_t bytes);
  // The same for `count` things of `size` bytes.
  void take(size_t count, size_t size);
  size_t limit() const { return limit_; }

 private:
  std::string source_;
  size_t limit_;
  size_t left_;
};

}  // namespace trainer::checkpoint
