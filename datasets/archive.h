#pragma once
// Data sets that are published as one archive: downloaded, checked, unpacked and installed completely or not at all.

#include <chrono>
#include <filesystem>
#include <string>

#include "base/log.h"

namespace trainer::datasets {

struct ArchiveSource {
  std::string url;                                  // http or https; redirects are followed. A tar file, plain or compressed with gzip
  std::string md5;                                  // of the archive, 32 lower-case hexadecimal digits
  std::string folder;                               // the archive's top folder, which is installed
  std::chrono::milliseconds stall_timeout{30'000};  // the longest time without a byte
};

// Downloads and unpacks the archive to root/folder; does nothing if that exists. Of several processes that
// call this for the same root, one downloads and the others wait for it. After a failure, `root` is unchanged; the
// partial files of a killed process are removed. Throws a DataError that names the URL, the reason and a remedy, or an Error with
// ExitCode::kStopped after a stop request.
void fetch_archive(const ArchiveSource& source, const std::filesystem::path& root, Logger& logger);

}  // namespace trainer::datasets
