#pragma once
// Data sets that are published as one archive: downloaded, checked, unpacked and put into place as a whole or not at all.

#include <chrono>
#include <filesystem>
#include <string>

#include "base/log.h"

namespace trainer::datasets {

struct ArchiveSource {
  std::string url;                                  // http or https; redirects are followed. A tar file, plain or compressed with gzip
  std::string md5;                                  // of the archive, 32 lower-case hexadecimal digits
  std::string folder;                               // the archive's top folder, which is what is put into place
  std::chrono::milliseconds stall_timeout{30'000};  // the longest time without a byte
};

// Downloads and unpacks the archive so that root/folder is there; does nothing when it is there already. Of several processes that
// call this for the same root, one downloads and the others wait for it. Whatever fails, only what was there before stays in
// `root`, and what a killed process left is removed. Throws DataError naming the URL, the reason and the cure, or Error with
// ExitCode::kStopped after a request to stop.
void fetch_archive(const ArchiveSource& source, const std::filesystem::path& root, Logger& logger);

}  // namespace trainer::datasets
