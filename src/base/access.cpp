#include "base/access.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <system_error>

namespace trainer {
namespace {

// `path`, or its nearest parent that exists.
std::filesystem::path first_that_exists(const std::filesystem::path& path) {
  std::error_code error;
  auto present = std::filesystem::absolute(path, error);
  while (present.has_relative_path() && !std::filesystem::exists(present, error)) present = present.parent_path();
  return present;
}

}  // namespace

std::string explain_refusal(const std::filesystem::path& path, const std::error_code& error, const std::string& remedy) {
  const auto present = first_that_exists(path);
  const auto first = remedy.empty() ? "" : remedy + "; ";
  struct stat status {};
  if (error == std::errc::read_only_file_system) {
    return fmt::format("{}: {} ({}a container needs a folder mounted there: --volume FOLDER:{})", error.message(), present.string(), first,
                       present.string());
  }
  if (error != std::errc::permission_denied || stat(present.c_str(), &status) != 0) {
    return error.message() + (remedy.empty() ? "" : "; " + remedy);
  }
  return fmt::format(
      "{}: {} belongs to user {}, and this process is user {} ({}chown -R {} {} gives it to this user; a container runs as its owner with "
      "--user {}:{})",
      error.message(), present.string(), status.st_uid, geteuid(), first, geteuid(), present.string(), status.st_uid, status.st_gid);
}

}  // namespace trainer
