#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace trainer {
namespace {

[[noreturn]] void fail(const std::string& action, const std::filesystem::path& path) {
  const auto reason = errno == ELOOP && action == "write" ? "it is a symbolic link, which is not followed" : std::strerror(errno);
  throw Error("cannot " + action + " " + path.string() + ": " + reason);
}

Descriptor open_file(const std::filesystem::path& path, int flags) { return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0644)); }

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) throw Error("cannot read " + path.string() + ": it is a folder");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail("read", path);
  std::ostringstream content;
  content << stream.rdbuf();
  if (stream.bad()) fail("read", path);
  return std::move(content).str();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path),
      temporary_(path.string() + ".tmp" + std::to_string(::getpid())),
      file_(open_file(temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW)) {
  if (file_.number() < 0) fail("write", temporary_);
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
  flush_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

Descriptor lock_file(const std::filesystem::path& path, mode_t mode) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode));
  return file.number() >= 0 && ::flock(file.number(), LOCK_EX | LOCK_NB) == 0 ? std::move(file) : Descriptor();
}

void flush_folder(const std::filesystem::path& path) {
  const auto folder = open_file(path, O_RDONLY | O_DIRECTORY);
  if (folder.number() >= 0) ::fsync(folder.number());
}

LineFile::LineFile(const std::filesystem::path& path) : path_(path), file_(open_file(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW)) {
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
  const auto file = open_file(path, O_RDONLY);
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) fail("read", path);
  if (!S_ISREG(status.st_mode)) throw Error("cannot read " + path.string() + ": it is not a regular file");
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number(), 0);
  if (address == MAP_FAILED) fail("map", path);
  const auto unmap = [size = size_](const uint8_t* data) { ::munmap(const_cast<uint8_t*>(data), size); };
  data_ = {static_cast<const uint8_t*>(address), unmap};
}

}  // namespace trainer
