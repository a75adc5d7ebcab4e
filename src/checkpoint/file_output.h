#pragma once

#include "base/file.h"
#include "checkpoint/output.h"

namespace trainer::checkpoint {

// Into a file, which must outlive it, and which its owner commits.
class FileOutput final : public Output {
 public:
  explicit FileOutput(AtomicFile& file) : file_(file) {}
  void write(const void* data, size_t size) override {
    file_.write({static_cast<const char*>(data), size});
    num_bytes_ += size;
  }
  size_t num_bytes() const { return num_bytes_; }

 private:
  AtomicFile& file_;
  size_t num_bytes_ = 0;
};

}  // namespace trainer::checkpoint
