#pragma once
// The list of the files that runs have written into a folder under names that vary, so that nothing else is removed there later. The list
// is a file of that folder, and marks it as one of this program: a line with the version of the format, then one name a line.

#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "base/file.h"

namespace trainer {

// The functions may be called by several threads.
class WrittenFiles {
 public:
  // Creates the file `list` with these names, relative to its folder, unless it exists. Returns the reason if it cannot be written.
  static std::error_code create(const std::filesystem::path& list, const std::vector<std::string>& names = {});

  // Reads an existing list. Throws UsageError if it has another format, and Error if it cannot be read or appended to.
  explicit WrittenFiles(const std::filesystem::path& list);

  // `file`: its path begins with the folder of the list. To be called before the file is written. Throws Error if the list cannot be
  // written.
  void add(const std::filesystem::path& file);
  bool contains(const std::filesystem::path& file) const;
  // Also those that do not exist any more.
  std::vector<std::filesystem::path> files() const;

 private:
  std::string name_of(const std::filesystem::path& file) const;

  std::filesystem::path folder_;
  LineFile lines_;
  mutable std::mutex mutex_;
  std::set<std::string> names_;
};

}  // namespace trainer
