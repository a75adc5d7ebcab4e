#include "datasets/installation.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "base/access.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/signal.h"

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

// An flock on a file that exists only while the lock is held. The constructor waits until the current holder releases it.
class FileLock {
 public:
  FileLock(fs::path path, const std::string& url, Logger& logger) : path_(std::move(path)) {
    if (try_lock()) return;
    logger.info("waiting for another process that downloads {}", url);
    while (!try_lock()) {
      if (stop_signal() != 0) throw Error(fmt::format("stopped on request while waiting for the download of {}", url), ExitCode::kStopped);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  // Unlink while the file is still locked, so that a later holder's file is never removed.
  ~FileLock() { ::unlink(path_.c_str()); }

 private:
  bool try_lock() {
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

  fs::path path_;
  Descriptor file_;
};

// The folder for everything unfinished. The destructor removes it.
class PartialFolder {
 public:
  explicit PartialFolder(fs::path path) : path_(std::move(path)) {
    std::error_code error;
    fs::remove_all(path_, error);
    if (error) throw std::system_error(error, "cannot remove " + path_.string());
    create_folders(path_);
  }
  ~PartialFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// One call for all files: a data set can have a hundred thousand.
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

}  // namespace

void create_folders(const std::filesystem::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error(fmt::format("cannot create {}: {}", folder.string(), explain_refusal(folder, error)));
}

void fail_with_errno(const std::string& action, const std::filesystem::path& path) {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", action, path.string(), explain_refusal(path, {errno, std::generic_category()})));
}

void install(const Installation& installation, Logger& logger,
             const std::function<std::filesystem::path(const std::filesystem::path& partial)>& make) {
  const auto& [root, folder, url, by_hand] = installation;
  const auto target = root / folder;
  auto name = folder;
  std::ranges::replace(name, '/', '-');
  try {
    create_folders(root);
    const FileLock lock(root / fmt::format(".{}.lock", name), url, logger);
    if (fs::exists(target)) return;
    const PartialFolder partial(root / fmt::format(".{}.partial", name));
    logger.info("downloading {} into {}", url, root.string());
    put_into_place(make(partial.path()), target);
    logger.info("installed in {}", target.string());
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw DataError(
        fmt::format("cannot get {}: {}; try again, or {}, so that {} holds its files", url, reason.what(), by_hand, target.string()));
  }
}

}  // namespace trainer::datasets
