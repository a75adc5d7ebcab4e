#pragma once
// A copy of a data set's folder on a local disk of this host (dataset.stage_to), which all processes of the host share.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "base/log.h"

namespace trainer::datasets {

class StagedFolder {
 public:
  // Copies the folder `source` into a separate folder in stage_to/trainer-UID, which only this user may enter. An existing copy is used if
  // it is unchanged and the source has the same names, sizes and modification times. One process copies while the others wait. Each file is
  // read back from the disk and compared. Targets of links are copied; a folder with several paths is copied once and linked. Anything
  // else, such as a broken link, becomes a link to the source. Throws DataError with the reason, and Error with ExitCode::kStopped after a
  // stop request. `files`: the files to copy, relative to the folder; empty: all. `is_current`: whether another process of the run has just
  // checked an existing copy, so that the source need not be listed again.
  StagedFolder(const std::filesystem::path& source, const std::vector<std::filesystem::path>& files, const std::filesystem::path& stage_to,
               bool is_current, Logger& logger);

  // The copy, which no process removes while this object exists.
  std::filesystem::path path() const;
  // Ends the use of the copy, and removes it unless another process uses it.
  void remove(Logger& logger);

 private:
  void copy(const std::filesystem::path& source, const std::vector<std::filesystem::path>& files, Logger& logger);
  std::filesystem::path hidden(const std::string& ending) const;

  std::filesystem::path folder_;    // contains the copy and a description of its source
  std::optional<FileLock> in_use_;  // of a file in folder_
};

}  // namespace trainer::datasets
