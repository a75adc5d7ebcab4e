#pragma once
// Data sets that are published as one archive. An archive is downloaded, checked and unpacked; it is installed completely or not at all.

#include <filesystem>
#include <string>

#include "base/log.h"
#include "datasets/download.h"

namespace trainer::datasets {

struct ArchiveSource {
  std::string url;     // http or https; redirects are followed. A tar file, plain or compressed with gzip
  std::string md5;     // of the archive, 32 lower-case hexadecimal digits
  std::string folder;  // the archive's top folder, which is installed
  DownloadLimits limits = {};
};

// Downloads and unpacks the archive to root/folder; does nothing if that exists. When several processes call this for the same root, one
// downloads and the others wait for it. After a failure, `root` has its previous contents; leftovers of a killed process are removed.
// Throws DataError that names the URL, the reason and the remedy, or Error with ExitCode::kStopped after a stop request.
void fetch_archive(const ArchiveSource& source, const std::filesystem::path& root, Logger& logger);

}  // namespace trainer::datasets
