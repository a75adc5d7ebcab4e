#include "datasets/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/access.h"
#include "base/error.h"
#include "base/file.h"
#include "base/signal.h"

// Functions here throw the reason as std::runtime_error; fetch_archive adds the URL and the remedy.

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_with_errno(const std::string& action, const fs::path& path) {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", action, path.string(), explain_refusal(path, {errno, std::generic_category()})));
}

void create_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error(fmt::format("cannot create {}: {}", folder.string(), explain_refusal(folder, error)));
}

// An flock on a file that exists only while the lock is held. The constructor waits until the current holder releases it.
class FileLock {
 public:
  FileLock(fs::path path, const ArchiveSource& source, Logger& logger) : path_(std::move(path)) {
    if (try_lock()) return;
    logger.info("waiting for another process that downloads {}", source.url);
    while (!try_lock()) {
      if (stop_signal() != 0)
        throw Error(fmt::format("stopped on request while waiting for the download of {}", source.url), ExitCode::kStopped);
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

// The entry's path. Throws unless it is a file or folder inside the folder to which the archive is unpacked.
fs::path checked_path(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  fs::path path = name != nullptr ? name : "";
  bool inside = !path.empty() && path.is_relative();
  for (const auto& part : path) inside = inside && part != "..";
  if (!inside) throw std::runtime_error(fmt::format("the archive is refused: it holds the unsafe path \"{}\"", path.string()));
  const auto type = archive_entry_filetype(entry);
  if (type != AE_IFREG && type != AE_IFDIR) {  // links have other types
    throw std::runtime_error(fmt::format("the archive is refused: \"{}\" in it is neither a file nor a folder", path.string()));
  }
  return path;
}

void check(archive* reader, int64_t result) {
  if (result < ARCHIVE_WARN) throw std::runtime_error(fmt::format("the archive cannot be unpacked: {}", archive_error_string(reader)));
}

void unpack_file(archive* reader, const fs::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(std::fopen(path.c_str(), "wbxe"), std::fclose);
  if (!output) fail_with_errno("write", path);
  std::vector<char> buffer(size_t{1} << 16);
  while (true) {
    const la_ssize_t size = archive_read_data(reader, buffer.data(), buffer.size());
    check(reader, size);
    if (size <= 0) break;
    if (std::fwrite(buffer.data(), 1, static_cast<size_t>(size), output.get()) != static_cast<size_t>(size)) fail_with_errno("write", path);
  }
  if (std::fflush(output.get()) != 0 || ::fsync(::fileno(output.get())) != 0) fail_with_errno("write", path);
}

void unpack(const fs::path& file, const fs::path& folder) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> owner(archive_read_new(), archive_read_free);
  archive* reader = owner.get();
  check(reader, archive_read_support_format_tar(reader));
  check(reader, archive_read_support_filter_gzip(reader));
  check(reader, archive_read_open_filename(reader, file.c_str(), size_t{1} << 16));
  create_folders(folder);
  archive_entry* entry = nullptr;
  while (true) {
    const int result = archive_read_next_header(reader, &entry);
    if (result == ARCHIVE_EOF) break;
    check(reader, result);
    const auto path = folder / checked_path(entry);
    if (archive_entry_filetype(entry) == AE_IFDIR) {
      create_folders(path);
    } else {
      create_folders(path.parent_path());
      unpack_file(reader, path);
    }
  }
}

void put_into_place(const fs::path& folder, const fs::path& target) {
  if (!fs::is_directory(folder)) throw std::runtime_error("the archive holds no folder " + target.filename().string());
  if (::rename(folder.c_str(), target.c_str()) != 0) fail_with_errno("create", target);
  flush_folder(target.parent_path());
}

}  // namespace

void fetch_archive(const ArchiveSource& source, const std::filesystem::path& root, Logger& logger) {
  const auto target = root / source.folder;
  try {
    create_folders(root);
    const FileLock lock(root / fmt::format(".{}.lock", source.folder), source, logger);
    if (fs::exists(target)) return;
    const PartialFolder partial(root / fmt::format(".{}.partial", source.folder));
    logger.info("downloading {} into {}", source.url, root.string());
    download(source.url, source.md5, partial.path() / "archive", source.limits, logger);
    unpack(partial.path() / "archive", partial.path() / "content");
    put_into_place(partial.path() / "content" / source.folder, target);
    logger.info("unpacked into {}", target.string());
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw DataError(fmt::format("cannot get {}: {}; try again, or unpack that archive by hand, so that {} holds its files", source.url,
                                reason.what(), target.string()));
  }
}

}  // namespace trainer::datasets
