#pragma once
// The destination of the bytes of a file that is being written.

#include <cstddef>

namespace trainer::checkpoint {

class Output {
 public:
  Output() = default;
  virtual ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Each call continues where the last one ended; `data` must stay valid until it returns. Throws what the underlying file throws.
  virtual void write(const void* data, size_t size) = 0;
};

}  // namespace trainer::checkpoint
