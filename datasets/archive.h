#pragma once
// Data sets that are published as one archive, or as a few files. They are downloaded, checked and unpacked, and installed completely or
// not at all (see install() in download.h, also for failures).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/log.h"
#include "datasets/download.h"
#include "trainer/keys.h"

namespace trainer::datasets {

// The options of a data set that can be downloaded.
struct PublishedOptions {
  std::string root = "data";
  bool download = false;

 protected:
  // `own_folders`: the names of the data set's folders, for the documentation of `root`; `more`: text that is appended to that
  // documentation.
  void describe_place(KeyTable& keys, const std::string& own_folders, const std::string& more = "");
};

struct ArchiveSource {
  std::string url;     // http or https; redirects are followed. A zip file, or a tar file, plain or compressed with gzip
  std::string md5;     // of the archive, 32 lower-case hexadecimal digits
  std::string folder;  // the archive's top folder, which is installed
  DownloadLimits limits = {};
};

// Downloads and unpacks the archive to root/folder; does nothing if this folder exists.
void fetch_archive(const ArchiveSource& source, const std::filesystem::path& root, Logger& logger);

struct PublishedFile {
  std::string name;
  std::string md5;
};
struct FilesSource {
  std::string url;  // of the folder that contains the files, with a trailing slash
  std::vector<PublishedFile> files;
  std::string folder;  // where the files are installed
  DownloadLimits limits = {};
};

// Downloads the files, as they are, into root/folder; does nothing if this folder exists.
void fetch_files(const FilesSource& source, const std::filesystem::path& root, Logger& logger);

}  // namespace trainer::datasets
