#pragma once
// Which file the main thread is using. A file system that does not answer, such as that of a lost NFS server, blocks the thread that uses
// it inside the kernel; other threads then report the file.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace trainer {

// The main thread uses a file or folder during the lifetime of this object; within it, an inner one replaces it. On other threads it does
// nothing.
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
  uint64_t num_changes = 0;  // of `text` so far
  std::chrono::steady_clock::time_point since = {};
};
CurrentFileAccess current_file_access();

}  // namespace trainer
