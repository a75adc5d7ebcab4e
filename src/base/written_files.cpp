#include "base/written_files.h"

#include <fcntl.h>

#include <cerrno>
#include <sstream>

#include "base/error.h"

namespace trainer {
namespace {

constexpr const char* kFirstLine = "trainer run directory, format 1";

}  // namespace

std::error_code WrittenFiles::create(const std::filesystem::path& list, const std::vector<std::string>& names) {
  std::string content = std::string(kFirstLine) + '\n';
  for (const auto& name : names) content += name + '\n';
  const auto file = open_regular_file(list, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (file.number() < 0 && errno == EEXIST) return {};
  std::string_view rest = content;
  if (file.number() < 0 || !write_all(file.number(), rest)) return {errno, std::generic_category()};
  return {};
}

WrittenFiles::WrittenFiles(const std::filesystem::path& list) : folder_(list.parent_path()), lines_(list) {
  std::istringstream lines(read_file(list));
  std::string line;
  // Empty: the process that creates it has not written the first line yet.
  if (std::getline(lines, line) && line != kFirstLine) {
    throw UsageError(list.string() + ": it begins with \"" + line.substr(0, 80) + "\", but this program writes \"" + kFirstLine +
                     "\"; use the version of the program that wrote this folder, or another folder");
  }
  while (std::getline(lines, line)) names_.insert(line);
}

std::string WrittenFiles::name_of(const std::filesystem::path& file) const { return file.lexically_relative(folder_).string(); }

void WrittenFiles::add(const std::filesystem::path& file) {
  const auto name = name_of(file);
  const std::scoped_lock lock(mutex_);
  if (names_.contains(name)) return;
  lines_.write_line(name);
  names_.insert(name);
}

bool WrittenFiles::contains(const std::filesystem::path& file) const {
  const std::scoped_lock lock(mutex_);
  return names_.contains(name_of(file));
}

std::vector<std::filesystem::path> WrittenFiles::files() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::filesystem::path> files;
  for (const auto& name : names_) files.push_back(folder_ / name);
  return files;
}

}  // namespace trainer
