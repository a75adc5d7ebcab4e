#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trainer/error.h"

namespace trainer {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) { throw Error("cannot write " + path.string() + ": " + std::strerror(errno)); }

bool names_descriptor(const std::filesystem::path& path, int descriptor) {
  struct stat named {};
  struct stat open {};
  const int flags = ::fcntl(descriptor, F_GETFL);
  const bool can_write = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  return can_write && ::stat(path.c_str(), &named) == 0 && ::fstat(descriptor, &open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

// As many as the system follows.
constexpr int kMostLinks = 40;

// Through links, because the place of a link may not be writable and because the link is the user's. The target may not exist yet.
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

bool is_standard_output(const std::filesystem::path& path) { return names_descriptor(path, STDOUT_FILENO); }

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path) {
  for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    if (!names_descriptor(path, standard)) continue;
    // Opening a file again would begin at its start, and a socket cannot be opened.
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
