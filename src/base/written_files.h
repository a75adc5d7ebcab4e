#pragma once
// The files that runs have written into a folder; later runs replace and remove only these. The list is a file in that folder and marks it
// as a run directory: a line with the format version, then one name per line.

#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "base/file.h"

namespace trainer {

// Such a list. Its member functions may be called by several threads at once.
class WrittenFiles {
 public:
  // Creates an empty list, unless it exists. If it cannot be written, returns the reason and leaves no file.
  static std::error_code create(const std::filesystem::path& list);

  // Reads an existing list. Throws UsageError if it has another format or names a file outside of its folder, and Error.
  explicit WrittenFiles(const std::filesystem::path& list);

  // `file`: its path begins with the folder of the list. To be called before the file is written. Throws Error.
  void add(const std::filesystem::path& file);
  // Flushes the list to the disk, so that it still contains all added files after a power failure. Throws Error.
  void flush() const;
  bool contains(const std::filesystem::path& file) const;
  // Includes files that no longer exist.
  std::vector<std::filesystem::path> files() const;

 private:
  std::string name_of(const std::filesystem::path& file) const;

  std::filesystem::path list_;
  LineFile lines_;
  mutable std::mutex mutex_;
  std::set<std::string> names_;
};

}  // namespace trainer
