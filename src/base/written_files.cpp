#include "base/written_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "trainer/error.h"

namespace trainer {
namespace {

constexpr const char* kFirstLine = "trainer run directory, format 1";

// Names outside the folder are refused, because another user who can write to the list could otherwise make a run remove any file.
bool leads_outside(const std::filesystem::path& name) { return name.is_absolute() || std::ranges::find(name, "..") != name.end(); }

}  // namespace

std::error_code WrittenFiles::create(const std::filesystem::path& list) {
  const std::string content = std::string(kFirstLine) + '\n';
  const auto file = open_regular_file(list, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (file.number() < 0 && errno == EEXIST) return {};
  std::string_view rest = content;
  if (file.number() >= 0 && write_all(file.number(), rest) && ::fsync(file.number()) == 0) {
    flush_folder(list.parent_path());
    return {};
  }
  const std::error_code reason(errno, std::generic_category());
  // Removes a partly written list, which would be read as a complete one.
  if (file.number() >= 0) ::unlink(list.c_str());
  return reason;
}

WrittenFiles::WrittenFiles(const std::filesystem::path& list) : list_(list), lines_(list) {
  std::istringstream lines(read_file(list));
  std::string line;
  // The list is still empty if another process has created it but not yet written the first line.
  if (std::getline(lines, line) && line != kFirstLine) {
    throw UsageError(list.string() + ": it begins with \"" + line.substr(0, 80) + "\", but this program writes \"" + kFirstLine +
                     "\"; use the version of the program that wrote this folder, or another folder");
  }
  while (std::getline(lines, line)) {
    if (leads_outside(line)) {
      throw UsageError(list.string() + ": the line \"" + line.substr(0, 80) +
                       "\" names a file outside of this folder, which this program never writes; remove the line, or use another folder");
    }
    names_.insert(line);
  }
}

std::string WrittenFiles::name_of(const std::filesystem::path& file) const { return file.lexically_relative(list_.parent_path()).string(); }

void WrittenFiles::add(const std::filesystem::path& file) {
  const auto name = name_of(file);
  const std::scoped_lock lock(mutex_);
  if (names_.contains(name)) return;
  // The process that created the list may have ended before it wrote the first line.
  std::error_code removed;
  const bool is_empty = std::filesystem::file_size(list_, removed) == 0;
  lines_.write((is_empty ? std::string(kFirstLine) + '\n' : "") + name + '\n');
  names_.insert(name);
}

void WrittenFiles::flush() const {
  const auto file = open_regular_file(list_, O_WRONLY | O_NOFOLLOW);
  if (file.number() >= 0 && ::fsync(file.number()) == 0) return;
  throw Error("cannot write " + list_.string() + ": " + (errno == 0 ? describe_irregular(list_) : std::strerror(errno)));
}

bool WrittenFiles::contains(const std::filesystem::path& file) const {
  const std::scoped_lock lock(mutex_);
  return names_.contains(name_of(file));
}

std::vector<std::filesystem::path> WrittenFiles::files() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::filesystem::path> files;
  for (const auto& name : names_) files.push_back(list_.parent_path() / name);
  return files;
}

}  // namespace trainer
