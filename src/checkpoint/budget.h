#pragma once
// Limits the memory that reading a file may allocate: a few bytes of a damaged or hostile file can request a lot.

#include <cstddef>
#include <string>

namespace trainer::checkpoint {

// Four times the file's size, plus 64 times its size up to 16 MiB: small files need it for the overhead of many small values.
size_t max_allocation(size_t file_size);

// Counts what a reader is about to allocate.
class Budget {
 public:
  Budget(size_t file_size, std::string source);

  // Throws CheckpointError if the sum of all calls would exceed max_allocation().
  void take(size_t bytes);
  // The same for `count` objects of `size` bytes each.
  void take(size_t count, size_t size);
  size_t limit() const { return limit_; }

 private:
  std::string source_;
  size_t limit_;
  size_t left_;
};

}  // namespace trainer::checkpoint
