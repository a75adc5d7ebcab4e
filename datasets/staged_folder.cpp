#include "datasets/staged_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <cerrno>
#include <random>
#include <stdexcept>
#include <system_error>

#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "data/threads.h"
#include "datasets/files.h"
#include "datasets/folder_listing.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

// Several threads, because network file systems serve several requests at a time.
constexpr int kNumThreads = 8;
constexpr size_t kPartBytes = size_t{1} << 20;
constexpr const char* kFiles = "files";
constexpr const char* kManifest = "manifest.txt";
constexpr const char* kInUse = ".in_use";

// The name of a copy contains this checksum, so that copies of different folders, and of different files of one folder, have different
// names.
uLong checksum_of_names(const fs::path& folder, const std::vector<fs::path>& files) {
  auto checksum = crc32_z(0, nullptr, 0);
  const auto add = [&checksum](const std::string& name) {
    checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(name.data()), name.size());
  };
  add(folder.string());
  for (const auto& file : files) add("\n" + file.string());
  return checksum;
}

// The first lines of a copy's manifest, which identify its source.
std::string describe(const FolderListing& source) {
  return fmt::format("{}\n{} files, {} bytes\n{}\n", source.folder.string(), source.files.size(), source.num_bytes, digest_of(source));
}

// Whether the copy still has the files of its manifest.
bool is_intact(const fs::path& copy, const std::string& manifest) {
  try {
    return manifest.ends_with('\n' + digest_of(list_folder(copy / kFiles)) + '\n');
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error&) {
    return false;
  }
}

std::string read_manifest(const fs::path& copy) {
  try {
    return read_file(copy / kManifest);
  } catch (const Error&) {
    return "";
  }
}

// Passes the content of a file to `take` in parts, and returns its checksum.
template <class Take>
uLong read_in_parts(const fs::path& path, std::string& buffer, const Take& take) {
  const auto file = open_file(path, O_RDONLY, "read");
  buffer.resize(kPartBytes);
  uLong checksum = crc32_z(0, nullptr, 0);
  while (true) {
    const auto num_read = ::read(file.number(), buffer.data(), buffer.size());
    if (num_read < 0 && errno == EINTR) continue;
    if (num_read < 0) fail_with_errno("read", path);
    if (num_read == 0) return checksum;
    checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(buffer.data()), static_cast<size_t>(num_read));
    take(std::string_view(buffer.data(), static_cast<size_t>(num_read)));
  }
}

// Copies one file and returns its checksum.
uLong copy_file(const fs::path& from, const fs::path& to, uint64_t num_bytes, std::string& buffer, std::atomic<uint64_t>& num_copied) {
  const auto output = open_file(to, O_WRONLY | O_CREAT | O_EXCL, "create");
  uint64_t num_read = 0;
  const auto checksum = read_in_parts(from, buffer, [&](std::string_view part) {
    num_read += part.size();
    num_copied += part.size();
    if (!write_all(output.number(), part)) fail_with_errno("write", to);
  });
  if (num_read != num_bytes) {
    throw std::runtime_error(from.string() + " changed while it was copied; start the program again when the data set no longer changes");
  }
  return checksum;
}

// Throws if the copy on the disk has a different checksum.
void verify_file(const fs::path& copy, uLong checksum, std::string& buffer) {
  {
    // Drops the pages of the file from the cache, so that they are read from the disk. The kernel drops only pages that are already on the
    // disk; copy_files() has flushed these.
    const auto file = open_file(copy, O_RDONLY, "read");
    ::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
  }
  if (read_in_parts(copy, buffer, [](std::string_view) {}) != checksum) {
    throw std::runtime_error(copy.string() + " has a different content when read back from the disk; check that disk");
  }
}

void stop_if_requested(const fs::path& source) {
  if (stop_signal() != 0) throw Error("stopped on request while copying " + source.string(), ExitCode::kStopped);
}

void check_space(const fs::path& stage_to, const FolderListing& source) {
  const auto free = fs::space(stage_to).available;
  if (free > source.num_bytes) return;
  throw std::runtime_error(fmt::format("{} has {} of free space, but the copy of {} needs {}; free some space, or choose another folder",
                                       stage_to.string(), format_bytes(free), source.folder.string(), format_bytes(source.num_bytes)));
}

void copy_files(const FolderListing& source, const fs::path& target, Logger& logger) {
  for (const auto& folder : source.folders) create_folders(target / folder);
  for (const auto& file : source.files) create_folders((target / file.path).parent_path());
  for (const auto& [path, to] : source.links) {
    create_folders((target / path).parent_path());
    std::error_code error;
    fs::create_symlink(to.empty() ? source.folder / path : to.lexically_relative(path.parent_path()), target / path, error);
    if (!error) continue;
    throw std::runtime_error(
        fmt::format("{} is a symbolic link, which cannot be created in {}: {}; choose a folder of another file system, or remove the link",
                    (source.folder / path).string(), target.string(), error.message()));
  }
  std::vector<uLong> checksums(source.files.size());
  std::atomic<uint64_t> num_copied = 0;
  uint64_t tenths = 0;
  const auto report = [&](size_t /*num_done*/) {
    if (source.num_bytes > 0 && num_copied * 10 / source.num_bytes > tenths) {
      tenths = num_copied * 10 / source.num_bytes;
      logger.info("copied {} % of {}", tenths * 10, format_bytes(source.num_bytes));
    }
    return stop_signal() == 0;
  };
  data::for_each_in_threads<std::string>(source.files.size(), kNumThreads, report, [&](size_t i, std::string& buffer) {
    const auto& [path, num_bytes, time] = source.files[i];
    checksums[i] = copy_file(source.folder / path, target / path, num_bytes, buffer, num_copied);
  });
  stop_if_requested(source.folder);
  flush_file_system(target);
  data::for_each_in_threads<std::string>(
      source.files.size(), kNumThreads, [](size_t /*num_done*/) { return stop_signal() == 0; },
      [&](size_t i, std::string& buffer) { verify_file(target / source.files[i].path, checksums[i], buffer); });
  stop_if_requested(source.folder);
}

// Marks the copy in `folder` as used by this process, with a locked file. To be called while the FolderLock is held, like the next
// function.
FileLock mark_as_used(const fs::path& folder, Logger& logger) {
  const auto file = folder / fmt::format("{}.{:016x}", kInUse, std::random_device()());
  FileLock lock(file, {.logger = &logger});
  if (lock.is_held()) return lock;
  errno = lock.error().value();
  fail_with_errno("create", file);
}

// Removes the files of processes that have ended.
bool is_used(const fs::path& folder, Logger& logger) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with(kInUse)) continue;
    if (!FileLock(entry.path(), {.logger = &logger}).is_held()) return true;
    fs::remove(entry.path());
  }
  return false;
}

// The folder of this user's copies, in which other users cannot add or change anything.
fs::path own_folder(const fs::path& place) {
  if (!is_there(place)) {
    create_folders(place);
    // The mode of /tmp, so that other users can have their folders there.
    ::chmod(place.c_str(), 01777);
  }
  const auto folder = place / fmt::format("trainer-{}", ::geteuid());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail_with_errno("create", folder);
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) fail_with_errno("use", folder);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
    throw std::runtime_error(fmt::format(
        "{} is not a folder of this user, so its content cannot be trusted; remove it, or choose another folder", folder.string()));
  }
  if ((status.st_mode & 07777) != 0700 && ::chmod(folder.c_str(), 0700) != 0) fail_with_errno("use", folder);
  return folder;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace

StagedFolder::StagedFolder(const fs::path& source, const std::vector<fs::path>& files, const fs::path& stage_to, bool is_current,
                           Logger& logger) {
  with_prefix<DataError>("dataset.stage_to", [&] {
    const auto folder = fs::canonical(source);
    const auto place = fs::weakly_canonical(fs::absolute(stage_to));
    if (lies_in(place, folder))
      throw std::runtime_error(
          fmt::format("{} is inside the data set's folder {}; choose a folder outside it", place.string(), folder.string()));
    folder_ = own_folder(place) / fmt::format("{}-{:08x}", folder.filename().string(), checksum_of_names(folder, files));
    const FolderLock lock(hidden("lock"), "copies " + folder.string(), logger);
    if (!is_current || !is_there(folder_)) copy(folder, files, logger);
    in_use_ = mark_as_used(folder_, logger);
  });
}

void StagedFolder::copy(const fs::path& folder, const std::vector<fs::path>& files, Logger& logger) {
  const auto source = files.empty() ? list_folder(folder) : list_files(folder, files);
  const auto description = describe(source);
  const PartialFolder partial(hidden("partial"));
  if (is_there(folder_)) {
    const auto manifest = read_manifest(folder_);
    const bool is_of_source = manifest.starts_with(description);
    if (is_of_source && is_intact(folder_, manifest)) return;
    if (is_used(folder_, logger)) {
      throw std::runtime_error(
          is_of_source ? fmt::format("files of the copy {} were removed or changed, and another process still uses it; wait for that "
                                     "process, or choose another folder",
                                     folder_.string())
                       : fmt::format("{} has changed since it was copied to {}, which another process still uses; wait for that process, "
                                     "or choose another folder",
                                     folder.string(), folder_.string()));
    }
    if (is_of_source || manifest.empty()) logger.warn("files of the copy {} were removed or changed; copying again", folder_.string());
    fs::rename(folder_, partial.path() / "outdated");
    fs::remove_all(partial.path() / "outdated");
  }
  check_space(folder_.parent_path(), source);
  logger.info("copying {} of {} from {} to {}", format_bytes(source.num_bytes), counted(static_cast<int64_t>(source.files.size()), "file"),
              folder.string(), folder_.parent_path().string());
  const auto copy = partial.path() / "copy";
  create_folders(copy / kFiles);
  copy_files(source, copy / kFiles, logger);
  write_file_atomically(copy / kManifest, description + digest_of(list_folder(copy / kFiles)) + '\n');
  put_into_place(copy, folder_);
  logger.info("copied and verified: {}", path().string());
}

fs::path StagedFolder::hidden(const std::string& ending) const {
  return folder_.parent_path() / fmt::format(".{}.{}", folder_.filename().string(), ending);
}

fs::path StagedFolder::path() const { return folder_ / kFiles; }

void StagedFolder::remove(Logger& logger) {
  try {
    const FolderLock lock(hidden("lock"), "uses or removes " + folder_.string(), logger);
    in_use_.reset();
    if (is_used(folder_, logger)) return;
    fs::rename(folder_, hidden("partial"));
    fs::remove_all(hidden("partial"));
    logger.info("removed the copy {}", folder_.string());
  } catch (const std::exception& reason) {
    // Only a warning, because the results of the run do not need the copy any more.
    logger.warn("dataset.stage_to: the copy {} was not removed: {}", folder_.string(), reason.what());
  }
}

}  // namespace trainer::datasets
