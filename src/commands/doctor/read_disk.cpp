#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <system_error>

#include "base/file.h"
#include "commands/doctor/read_host.h"

namespace trainer::doctor {
namespace {

namespace fs = std::filesystem;

fs::path nearest_folder(const fs::path& folder) {
  std::error_code error;
  auto path = fs::absolute(folder, error);
  while (!fs::exists(path, error) && path != path.parent_path()) path = path.parent_path();
  return path;
}

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

Disk read_disk(const fs::path& folder) {
  constexpr size_t kPart = size_t{1} << 20;
  constexpr size_t kNumParts = 32;
  const auto path = nearest_folder(folder);
  Disk disk;
  disk.folder = path.string();
  const auto file_path = path / fmt::format(".trainer-doctor-{}", getpid());
  const auto file = lock_file(file_path, 0600);
  const int error = errno;
  unlink(file_path.c_str());
  if (file.number() < 0) {
    errno = error;
    disk.problem = fmt::format("no file can be written and locked in {}: {}", disk.folder, reason());
    return disk;
  }
  const std::string part(kPart, 'x');
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < kNumParts; ++i) {
    std::string_view rest = part;
    if (write_all(file.number(), rest)) continue;
    disk.problem = fmt::format("cannot write {} MiB in {}: {}", kNumParts, disk.folder, reason());
    return disk;
  }
  if (fsync(file.number()) != 0) {
    disk.problem = fmt::format("cannot flush a file in {}: {}", disk.folder, reason());
    return disk;
  }
  disk.bytes_per_second = kPart * kNumParts / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::error_code unknown;
  disk.free = fs::space(path, unknown).available;
  return disk;
}

}  // namespace trainer::doctor
