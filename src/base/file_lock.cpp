#include "base/file_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <ctime>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/program.h"
#include "base/signal.h"
#include "trainer/error.h"

namespace trainer {
namespace {

// Hosts may have the same name, and a host may have another kernel after a restart.
std::string line_of_host() {
  std::string boot = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("host {}, boot {}, ", host_name(), boot);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Whether an flock decides if the process of this text still runs.
bool is_of_this_host(const std::string& text) {
  const auto second = text.find('\n');
  return second != text.npos && text.compare(second + 1, line_of_host().size(), line_of_host()) == 0;
}

// Opens the file by its name, so that NFS returns the present content. Empty if that is not possible.
std::optional<std::string> read_lock(const Descriptor& file) {
  std::array<char, 1024> buffer;
  const auto size = file.number() < 0 ? -1 : ::pread(file.number(), buffer.data(), buffer.size(), 0);
  return size < 0 ? std::nullopt : std::optional(std::string(buffer.data(), static_cast<size_t>(size)));
}

std::optional<std::string> read_lock(const std::filesystem::path& path) {
  const FileAccess access("reading", path);
  return read_lock(open_regular_file(path, O_RDONLY | O_NOFOLLOW));
}

bool write_lock(const Descriptor& file, const std::string& text) {
  return ::pwrite(file.number(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

bool is_without_flock(int reason) { return reason == ENOSYS || reason == ENOLCK || reason == EOPNOTSUPP; }

bool is_file_at(const Descriptor& file, const std::filesystem::path& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(file.number(), &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

// Whether the lease of `text` is renewed. Counts the reads instead of the time, because a file system that does not respond for a while
// keeps the holder from renewing it, too.
bool is_renewed(const std::filesystem::path& path, const std::string& text, const FileLock::Options& options) {
  constexpr int kNumReads = 60;
  for (int i = 0; i < kNumReads; ++i) {
    std::this_thread::sleep_for(options.patience / kNumReads);
    if (stop_signal() != 0) throw Error("stopped on request while waiting for the lock " + path.string(), ExitCode::kStopped);
    if (read_lock(path) != text) return true;
  }
  return false;
}

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

class FileLock::Lease {
 public:
  Lease(std::filesystem::path path, Descriptor file, std::chrono::milliseconds renewal)
      : path_(std::move(path)), file_(std::move(file)), renewal_(renewal) {
    std::random_device random;
    text_ = fmt::format("process {} on {} since {:%Y-%m-%d %H:%M:%S %z}\n{}lock {:08x}{:08x}, renewal ", ::getpid(), host_name(),
                        fmt::localtime(std::time(nullptr)), line_of_host(), random(), random());
  }
  ~Lease() {
    thread_ = {};
    if (is_own(read_lock(path_))) [[maybe_unused]]
      const int done = ::ftruncate(file_.number(), 0);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  bool write_first() {
    const auto text = text_with_number();
    return write_lock(file_, text) && ::ftruncate(file_.number(), static_cast<off_t>(text.size())) == 0 && ::fsync(file_.number()) == 0;
  }
  void start() {
    thread_ = std::jthread([this](const std::stop_token& stop) { renew(stop); });
  }
  const std::filesystem::path& path() const { return path_; }
  bool is_own(const std::optional<std::string>& text) const { return text && text->starts_with(text_); }

 private:
  // All numbers have the same length, so that no reader sees an incomplete text.
  std::string text_with_number() const { return fmt::format("{}{:010}\n", text_, number_); }

  void renew(const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any wake_up;
    while (true) {
      wake_up.wait_for(lock, stop, renewal_, [] { return false; });
      if (stop.stop_requested()) return;
      // Closing the file passes its content to the server of a network file system.
      const auto file = open_regular_file(path_, O_RDWR | O_NOFOLLOW);
      ++number_;
      if (is_own(read_lock(file))) write_lock(file, text_with_number());
    }
  }

  std::filesystem::path path_;
  Descriptor file_;
  std::chrono::milliseconds renewal_;
  std::string text_;
  int64_t number_ = 0;
  std::jthread thread_;
};

FileLock::FileLock(const std::filesystem::path& path, const Options& options) {
  const FileAccess access("locking", path);
  const auto fail = [&](int reason) { error_ = {reason, std::generic_category()}; };
  Descriptor file;
  bool has_flock = true;
  do {
    file = open_regular_file(path, O_RDWR | O_CREAT | O_NOFOLLOW);
    if (file.number() < 0 && errno == 0) throw Error("cannot lock " + path.string() + ": " + describe_irregular(path));
    if (file.number() < 0) {
      fail(errno);
      return;
    }
    has_flock = ::flock(file.number(), LOCK_EX | LOCK_NB) == 0;
    if (!has_flock && !is_without_flock(errno)) {
      fail(errno == EINTR ? EWOULDBLOCK : errno);
      // The file is still empty if the holder has just taken the lock.
      if (error_ == std::errc::operation_would_block) other_ = first_line(read_lock(path).value_or(""));
      return;
    }
    if (!has_flock && options.logger != nullptr) {
      options.logger->warn(
          "{}: this file system has no locks (flock: {}); a lease, which is renewed every {:g} s, replaces them, so that a start after a "
          "crash waits {:g} s; to avoid that, mount it with locks (Lustre: flock; NFS: without nolock; SMB: without nobrl)",
          path.string(), std::generic_category().message(errno), seconds(options.renewal), seconds(options.patience));
    }
    // A previous holder may have removed the file before this process locked it.
  } while (!is_file_at(file, path));
  const auto before = read_lock(path).value_or("");
  const bool is_lease = !before.empty() && !(has_flock && is_of_this_host(before));
  other_ = first_line(before);
  if (is_lease) {
    if (options.logger != nullptr) {
      options.logger->info("{} is locked by {}: waiting {:g} s for a renewal of its lease", path.string(), other_,
                           seconds(options.patience));
    }
    if (is_renewed(path, before, options)) {
      fail(EWOULDBLOCK);
      return;
    }
  }
  auto lease = std::make_unique<Lease>(path, std::move(file), options.renewal);
  if (!lease->write_first()) {
    fail(errno);
    return;
  }
  if (is_lease || !has_flock) {
    // Several processes may have waited for the same lease: the last one that writes gets it.
    std::this_thread::sleep_for(options.renewal / 5);
    const auto present = read_lock(path);
    if (!lease->is_own(present)) {
      other_ = first_line(present.value_or(""));
      fail(EWOULDBLOCK);
      return;
    }
  }
  if (!other_.empty()) {
    other_ +=
        is_lease ? fmt::format(", which has not renewed it for {:g} s", seconds(options.patience)) : ", which ended without releasing it";
  }
  lease->start();
  lease_ = std::move(lease);
}

FileLock::~FileLock() = default;
FileLock::FileLock(FileLock&& other) noexcept = default;
FileLock& FileLock::operator=(FileLock&& other) noexcept = default;

std::optional<std::string> FileLock::taken_by() const {
  auto text = read_lock(lease_->path());
  if (!text || lease_->is_own(text)) return std::nullopt;
  // Another process writes its description shortly after it has taken the lock.
  for (int i = 0; i < 30 && text && text->empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    text = read_lock(lease_->path());
  }
  return first_line(text.value_or(""));
}

bool is_locked(const std::filesystem::path& path) {
  const auto text = read_lock(path).value_or("");
  // The lock of an empty file is not tried, because even a brief shared lock could make a process that is just taking it fail.
  if (text.empty()) return false;
  const auto file = open_regular_file(path, O_RDONLY | O_NOFOLLOW);
  const bool has_flock = file.number() >= 0 && ::flock(file.number(), LOCK_SH | LOCK_NB) == 0;
  if (!has_flock && errno == EWOULDBLOCK) return true;
  if (has_flock && is_of_this_host(text)) return false;
  std::error_code removed;
  const auto renewed = std::filesystem::last_write_time(path, removed);
  return !removed && renewed > std::filesystem::file_time_type::clock::now() - 2 * FileLock::Options().patience;
}

}  // namespace trainer
