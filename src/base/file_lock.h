#pragma once
// A lock among processes, also of several hosts, and on file systems without locks.

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "base/log.h"

namespace trainer {

// An exclusive lock on a file until the object is destroyed or the process ends. It consists of an flock and a lease, because on some
// mounts an flock is not known to other hosts, and some file systems have none. The file names the holder and contains a number, which a
// thread of the holder increases. The lock of another host's process is taken over only if the number has stayed the same during
// `patience`.
class FileLock {
 public:
  struct Options {
    Logger* logger = nullptr;  // is told of a wait, and of a file system without flock
    std::chrono::milliseconds renewal = std::chrono::seconds(5);
    std::chrono::milliseconds patience = std::chrono::seconds(30);
  };

  // Waits only to find out whether a process of another host still renews its lease. Throws Error when the path is not a regular file and,
  // with ExitCode::kStopped, for a stop request during the wait.
  FileLock(const std::filesystem::path& path, const Options& options);
  // Empties the file unless another process has taken the lock over.
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

  bool is_held() const { return lease_ != nullptr; }
  // Why it is not held: std::errc::operation_would_block when another process holds the lock.
  const std::error_code& error() const { return error_; }
  // The process that holds the lock, such as "process 31 on host-a since 2026-01-31 12:00:00 +0000", or, if this object does, the process
  // that held it before and did not release it, with how that was found out. Empty: none, or unknown.
  const std::string& other() const { return other_; }
  // Called while the lock is held: the process that has taken it over nevertheless (an empty text if the file names none).
  std::optional<std::string> taken_by() const;

 private:
  class Lease;

  std::error_code error_;
  std::string other_;
  std::unique_ptr<Lease> lease_;
};

// Whether a process holds the lock of this file, without taking it. For a lease, decides by the time of the last renewal.
bool is_locked(const std::filesystem::path& path);

}  // namespace trainer
