#pragma once

#include <cstdint>
#include <filesystem>

#include "base/file.h"
#include "checkpoint/output.h"

namespace trainer::checkpoint {

// Writes to a file that is complete after commit() and absent without it.
class FileOutput final : public Output {
 public:
  explicit FileOutput(const std::filesystem::path& path) : file_(path) {}
  void write(const void* data, size_t size) override {
    file_.write({static_cast<const char*>(data), size});
    num_bytes_ += size;
  }
  // Returns the file's size in bytes.
  uint64_t commit() {
    file_.commit();
    return num_bytes_;
  }

 private:
  AtomicFile file_;
  uint64_t num_bytes_ = 0;
};

}  // namespace trainer::checkpoint
