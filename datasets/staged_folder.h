#pragma once
// A copy of a data set's folder on a disk of this host (dataset.stage_to), which all processes of the host share.

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"

namespace trainer::datasets {

class StagedFolder {
 public:
  // Copies the folder `source` into a folder of its own in stage_to/trainer-UID, which only this user may enter, unless a copy is there
  // that is as it was written, of a source with the same names, sizes and times of change. One process copies while the others wait; what a
  // killed process has left is removed. Each file's checksum is computed while it is read and compared with that of its copy, read back
  // from the disk. Links are copied as what they lead to; a folder to which several paths lead is copied once, and linked. What is neither
  // a file nor a folder, such as a broken link, is a link to the source, so that reading it fails alike. Throws DataError with the reason
  // (not enough space, a file that cannot be read, a folder of another user, an outdated copy that another process uses), Error with
  // ExitCode::kStopped after a stop request. `files`: those that are copied, relative to the folder; of these, folders and what is missing
  // are left out. Empty: all. `is_current`: a copy that is there has just been compared by another process of the run, so that the source
  // is not listed again.
  StagedFolder(const std::filesystem::path& source, const std::vector<std::filesystem::path>& files, const std::filesystem::path& stage_to,
               bool is_current, Logger& logger);

  // The copy, which no process removes while this object exists.
  std::filesystem::path path() const;
  // Ends the use of the copy, and removes it unless another process uses it.
  void remove(Logger& logger);

 private:
  void copy(const std::filesystem::path& source, const std::vector<std::filesystem::path>& files, Logger& logger);
  std::filesystem::path hidden(const std::string& ending) const;

  std::filesystem::path folder_;  // holds the copy and a description of its source
  Descriptor in_use_;             // a shared flock on a file in it
};

}  // namespace trainer::datasets
