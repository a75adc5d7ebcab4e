#include "base/file.h"

#include <fcntl.h>
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
  throw Error("cannot " + action + " " + path.string() + ": " + std::strerror(errno));
}

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  bool ok() const { return value_ >= 0; }

 private:
  int value_;
};

// `bytes`: what is left of them, when it fails.
bool write_all(int descriptor, std::string_view& bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

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
  const std::filesystem::path temporary = path.string() + ".tmp" + std::to_string(::getpid());
  {
    const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.ok()) fail("write", temporary);
    if (!write_all(file.get(), content) || ::fsync(file.get()) != 0) {
      const int reason = errno;
      ::unlink(temporary.c_str());
      errno = reason;
      fail("write", path);
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    errno = reason;
    fail("write", path);
  }
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const Descriptor directory(folder, O_RDONLY | O_DIRECTORY);
  if (directory.ok()) ::fsync(directory.get());
}

LineFile::LineFile(const std::filesystem::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) fail("write", path);
}

LineFile::~LineFile() { ::close(descriptor_); }

void LineFile::write_line(std::string_view line) { write(std::string(line) + '\n'); }

void LineFile::write(std::string_view bytes) {
  auto rest = bytes;
  if (write_all(descriptor_, rest)) return;
  const int reason = errno;
  // A part of a line would spoil what stands before it, for whoever reads them all.
  struct stat status {};
  const auto num_written = static_cast<off_t>(bytes.size() - rest.size());
  if (::fstat(descriptor_, &status) == 0) [[maybe_unused]]
    const int done = ::ftruncate(descriptor_, status.st_size - num_written);
  errno = reason;
  fail("write", path_);
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Descriptor file(path, O_RDONLY);
  struct stat status {};
  if (!file.ok() || ::fstat(file.get(), &status) != 0) fail("read", path);
  if (!S_ISREG(status.st_mode)) throw Error("cannot read " + path.string() + ": it is no regular file");
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) fail("map", path);
  data_ = static_cast<const uint8_t*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace trainer
