#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/signal.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer {
namespace {

// `refused`: the file or folder that could not be written, if it is not `path`.
[[noreturn]] void fail(const std::string& action, const std::filesystem::path& path, const std::filesystem::path& refused = {}) {
  const int reason = errno;
  const bool is_link = reason == ELOOP && action == "write";
  auto text = is_link ? "it is a symbolic link, which is not followed; remove the link" : std::string(std::strerror(reason));
  if (reason == EACCES && action == "write") text = explain_refusal(refused.empty() ? path : refused, {reason, std::generic_category()});
  if (reason == EFBIG) text += " (ulimit -f limits the size of files)";
  throw Error("cannot " + action + " " + path.string() + ": " + (reason == 0 ? describe_irregular(path) : text));
}

std::filesystem::path folder_of(const std::filesystem::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

// Returns "it is a pipe, not a regular file", for example; empty for a regular file.
std::string describe_irregular(mode_t mode) {
  const char* kind = "something else";
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) kind = "a folder";
  if (S_ISFIFO(mode)) kind = "a pipe";
  if (S_ISSOCK(mode)) kind = "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) kind = "a device";
  return std::string("it is ") + kind + ", not a regular file";
}

// Opens a path of any kind without blocking.
Descriptor open_any(const std::filesystem::path& path, int flags, mode_t mode) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode));
}

// `awaited`: what a read may wait for; empty for a file. `is_pipe`: of a named pipe, which is opened without waiting for a writer.
std::string read_all(int descriptor, const std::string& name, size_t max_bytes, const std::string& awaited, bool is_pipe) {
  constexpr int kPollMilliseconds = 100;
  constexpr int kMostPollsWithoutWriter = 50;
  const auto check_stop = [&] {
    if (!awaited.empty() && stop_signal() != 0) throw Error("stopped on request while waiting for " + awaited, ExitCode::kStopped);
  };
  std::string content;
  std::array<char, size_t{1} << 16> buffer;
  int num_polls_without_writer = 0;
  while (true) {
    pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
    const bool is_ready = awaited.empty() || ::poll(&wanted, 1, kPollMilliseconds) > 0;
    if (!is_ready) check_stop();
    if (!is_ready && !is_pipe) continue;
    const auto length = ::read(descriptor, buffer.data(), buffer.size());
    if (length < 0 && errno != EINTR && errno != EAGAIN) fail("read", name);
    if (length == 0 && is_ready) {
      // The input may have ended because its writer was stopped too.
      check_stop();
      return content;
    }
    if (length == 0 && ++num_polls_without_writer == kMostPollsWithoutWriter)
      throw Error("cannot read " + name + ": it is a pipe, and no program has opened it for writing");
    if (length > 0) content.append(buffer.data(), static_cast<size_t>(length));
    if (content.size() > max_bytes) throw Error("cannot read " + name + ": it has more than " + format_bytes(max_bytes));
  }
}

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

[[noreturn]] void throw_unreadable(const std::string& path) {
  const int reason = errno;
  throw std::runtime_error("cannot be read: " +
                           (reason == 0 ? trainer::describe_irregular(path) : std::generic_category().message(reason)));
}

// Global because a process has only one main thread, and the functions that read files have no access to the object that watches the main
// thread.
std::mutex mutex;
CurrentFileAccess current;

// Returns the previous text.
std::string replace_text(std::string text) {
  const std::lock_guard lock(mutex);
  ++current.num_changes;
  current.since = std::chrono::steady_clock::now();
  return std::exchange(current.text, std::move(text));
}

// Returns `path`, or its nearest parent folder that exists.
std::filesystem::path first_that_exists(const std::filesystem::path& path) {
  std::error_code error;
  auto present = std::filesystem::absolute(path, error);
  while (present.has_relative_path() && !std::filesystem::exists(present, error)) present = present.parent_path();
  return present;
}

[[noreturn]] void fail(const std::filesystem::path& path) { throw Error("cannot write " + path.string() + ": " + std::strerror(errno)); }

bool names_descriptor(const std::filesystem::path& path, int descriptor) {
  struct stat named {};
  struct stat open {};
  const int flags = ::fcntl(descriptor, F_GETFL);
  const bool can_write = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  return can_write && ::stat(path.c_str(), &named) == 0 && ::fstat(descriptor, &open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

// The largest number of successive links that Linux follows.
constexpr int kMostLinks = 40;

// Follows links, because the user's link must not be replaced by a file, and its folder may not be writable. The target may not exist yet.
std::filesystem::path target_of(const std::filesystem::path& path) {
  auto target = path;
  for (int i = 0; i <= kMostLinks; ++i) {
    std::error_code no_link;
    const auto next = std::filesystem::read_symlink(target, no_link);
    if (no_link) return target;
    target = target.parent_path() / next;
  }
  errno = ELOOP;
  fail(path);
}

}  // namespace

std::optional<uint64_t> largest_size_of(const Descriptor& file) {
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  auto largest = is_limited ? std::optional<uint64_t>(limit.rlim_cur) : std::nullopt;
  constexpr off_t kOfFat = (off_t{1} << 32) - 1;
  const auto position = ::lseek(file.number(), 0, SEEK_CUR);
  if (::lseek(file.number(), kOfFat + 1, SEEK_SET) < 0) largest = std::min(largest.value_or(kOfFat), uint64_t{kOfFat});
  ::lseek(file.number(), position, SEEK_SET);
  return largest;
}

Descriptor open_regular_file(const std::filesystem::path& path, int flags, mode_t mode) {
  auto file = open_any(path, flags, mode);
  int reason = errno;
  struct stat status {};
  if (file.number() >= 0) {
    if (::fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode)) return file;
    reason = 0;
  } else if ((reason == EISDIR || reason == ENXIO) && !describe_irregular(path).empty()) {
    // A folder and a pipe without a reader cannot be opened for writing, and a socket cannot be opened at all.
    reason = 0;
  }
  file.close();
  errno = reason;
  return Descriptor();
}

std::string describe_irregular(const std::filesystem::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? describe_irregular(status.st_mode) : "";
}

std::span<const uint8_t> read_bytes(const std::string& path, std::vector<uint8_t>& buffer) {
  const FileAccess access("reading", path);
  const auto file = open_regular_file(path, O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) throw_unreadable(path);
  if (status.st_size > kMaxFileBytes) {
    throw std::runtime_error("cannot be read: it has more than " + format_bytes(kMaxFileBytes) + "; make the file smaller");
  }
  const auto num_bytes = static_cast<size_t>(status.st_size);
  if (buffer.size() < num_bytes) buffer.resize(num_bytes);
  size_t num_read = 0;
  while (num_read < num_bytes) {
    const auto length = ::read(file.number(), buffer.data() + num_read, num_bytes - num_read);
    if (length < 0 && errno != EINTR) throw_unreadable(path);
    if (length == 0) break;
    if (length > 0) num_read += static_cast<size_t>(length);
  }
  if (num_read == 0) throw std::runtime_error("cannot be read: the file is empty");
  return std::span<const uint8_t>(buffer).first(num_read);
}

std::string read_file(const std::filesystem::path& path) {
  const FileAccess access("reading", path);
  const auto file = open_regular_file(path, O_RDONLY);
  if (file.number() < 0) fail("read", path);
  return read_all(file.number(), path.string(), std::string().max_size(), "", /*is_pipe=*/false);
}

std::string read_file_or_pipe(const std::filesystem::path& path, size_t max_bytes) {
  const FileAccess access("reading", path);
  const auto file = open_any(path, O_RDONLY, 0);
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) fail("read", path);
  const bool is_pipe = S_ISFIFO(status.st_mode);
  const auto refusal = describe_irregular(status.st_mode);
  if (!is_pipe && !refusal.empty()) throw Error("cannot read " + path.string() + ": " + refusal + " or a pipe");
  return read_all(file.number(), path.string(), max_bytes, is_pipe ? "the writer of the pipe " + path.string() : "", is_pipe);
}

std::string read_standard_input(size_t max_bytes) {
  const FileAccess access("reading", kStandardInputName);
  return read_all(STDIN_FILENO, kStandardInputName, max_bytes, kStandardInputName, /*is_pipe=*/false);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path),
      temporary_(path.string() + ".tmp" + std::to_string(::getpid())),
      removed_on_exit_(temporary_),
      file_(open_regular_file(temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW)) {
  // The name of the temporary file does not help the user, unless that file itself is the obstacle.
  if (file_.number() < 0) fail("write", errno == ELOOP || errno == 0 ? temporary_ : path_, folder_of(path_));
}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  if (!write_all(file_.number(), bytes)) fail("write", path_);
}

void AtomicFile::commit() {
  if (::fsync(file_.number()) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) fail("write", path_);
  committed_ = true;
  flush_folder(folder_of(path_));
}

void flush_folder(const std::filesystem::path& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number() >= 0) ::fsync(folder.number());
}

LineFile::LineFile(const std::filesystem::path& path)
    : path_(path), file_(open_regular_file(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW)) {
  if (file_.number() < 0) fail("write", path);
}

void LineFile::write_line(std::string_view line) { write(std::string(line) + '\n'); }

void LineFile::write(std::string_view bytes) {
  auto rest = bytes;
  if (write_all(file_.number(), rest)) return;
  const int reason = errno;
  // Remove the written part: an incomplete line would make the whole file unreadable for a parser.
  struct stat status {};
  const auto num_written = static_cast<off_t>(bytes.size() - rest.size());
  if (::fstat(file_.number(), &status) == 0) [[maybe_unused]]
    const int done = ::ftruncate(file_.number(), status.st_size - num_written);
  errno = reason;
  fail("write", path_);
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const FileAccess access("reading", path);
  const auto file = open_regular_file(path, O_RDONLY);
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) fail("read", path);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number(), 0);
  if (address == MAP_FAILED) fail("map", path);
  const auto unmap = [size = size_](const uint8_t* data) { ::munmap(const_cast<uint8_t*>(data), size); };
  data_ = {static_cast<const uint8_t*>(address), unmap};
}

FileAccess::FileAccess(const char* action, const std::filesystem::path& path) : is_main_thread_(gettid() == getpid()) {
  if (is_main_thread_) before_ = replace_text(action + (" " + path.string()));
}

FileAccess::~FileAccess() {
  if (is_main_thread_) replace_text(std::move(before_));
}

CurrentFileAccess current_file_access() {
  const std::lock_guard lock(mutex);
  return current;
}

std::string explain_refusal(const std::filesystem::path& path, const std::error_code& error, const std::string& remedy) {
  const auto present = first_that_exists(path);
  const auto first = remedy.empty() ? "" : remedy + "; ";
  struct stat status {};
  if (error == std::errc::read_only_file_system) {
    return fmt::format("{}: {} ({}in a container, mount a folder there: --volume FOLDER:{})", error.message(), present.string(), first,
                       present.string());
  }
  if (error != std::errc::permission_denied || stat(present.c_str(), &status) != 0) {
    return error.message() + (remedy.empty() ? "" : "; " + remedy);
  }
  if (status.st_uid == geteuid()) {
    return fmt::format("{}: {} belongs to this user, but its permissions do not allow writing ({}chmod -R u+rwX {} allows it)",
                       error.message(), present.string(), first, present.string());
  }
  return fmt::format(
      "{}: {} belongs to user {}, but this process runs as user {} ({}chown -R {} {} gives it to this user; to run a container as its "
      "owner, use "
      "--user {}:{})",
      error.message(), present.string(), status.st_uid, geteuid(), first, geteuid(), present.string(), status.st_uid, status.st_gid);
}

bool is_standard_output(const std::filesystem::path& path) { return names_descriptor(path, STDOUT_FILENO); }

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path) {
  for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    if (!names_descriptor(path, standard)) continue;
    // Opening a file again would start at its beginning, and a socket cannot be opened.
    in_place_ = Descriptor(::fcntl(standard, F_DUPFD_CLOEXEC, 0));
    if (in_place_.number() < 0) fail(path);
    return;
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) {
    file_.emplace(target_of(path));
    return;
  }
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode))
    throw UsageError("cannot write " + path.string() + ": " + describe_irregular(path));
  in_place_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (in_place_.number() < 0) fail(path);
}

void OutputFile::write(std::string_view bytes) {
  if (file_) {
    file_->write(bytes);
  } else if (!write_all(in_place_.number(), bytes)) {
    fail(path_);
  }
}

void OutputFile::commit() {
  if (file_) file_->commit();
}

void write_output_file(const std::filesystem::path& path, std::string_view content) {
  OutputFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace trainer
