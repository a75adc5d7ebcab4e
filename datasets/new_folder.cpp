#include "datasets/new_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/signal.h"
#include "trainer/error.h"

namespace trainer::datasets {

namespace fs = std::filesystem;

FolderLock::FolderLock(fs::path file, const std::string& activity, Logger& logger) : path_(std::move(file)) {
  if (try_lock()) return;
  logger.info("waiting for another process that {}", activity);
  while (!try_lock()) {
    if (stop_signal() != 0) {
      throw Error(fmt::format("stopped on request while waiting for another process that {}", activity), ExitCode::kStopped);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// Unlink while the file is still locked, so that a later holder's file is never removed.
FolderLock::~FolderLock() { ::unlink(path_.c_str()); }

bool FolderLock::try_lock() {
  auto file = lock_file(path_, 0666);
  if (file.number() < 0) {
    if (errno == EWOULDBLOCK || errno == EINTR) return false;
    fail_with_errno("create", path_);
  }
  // The previous holder may have removed the file between our open and our lock.
  struct stat ours {};
  struct stat present {};
  if (::fstat(file.number(), &ours) != 0) fail_with_errno("lock", path_);
  if (::stat(path_.c_str(), &present) != 0 || ours.st_ino != present.st_ino || ours.st_dev != present.st_dev) return false;
  file_ = std::move(file);
  return true;
}

PartialFolder::PartialFolder(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  fs::remove_all(path_, error);
  if (error) throw std::system_error(error, "cannot remove " + path_.string());
  create_folders(path_);
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void flush_file_system(const fs::path& folder) {
  const Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.number() < 0 || ::syncfs(file.number()) != 0) fail_with_errno("write", folder);
}

void put_into_place(const fs::path& folder, const fs::path& target) {
  flush_file_system(folder);
  create_folders(target.parent_path());
  if (::rename(folder.c_str(), target.c_str()) != 0) fail_with_errno("create", target);
  flush_folder(target.parent_path());
}

void create_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error(fmt::format("cannot create {}: {}", folder.string(), explain_refusal(folder, error)));
}

void fail_with_errno(const std::string& action, const fs::path& path) {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", action, path.string(), explain_refusal(path, {errno, std::generic_category()})));
}

}  // namespace trainer::datasets
