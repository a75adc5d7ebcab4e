#pragma once
// Data sets that are published as one archive, or as a few files. They are downloaded, checked and unpacked, and installed completely or
// not at all (see install() in download.h, also for failures).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
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

// Reads zip files in memory, also in the zip64 form. Entries may be stored or deflated.

struct ZipEntry {
  std::string path;
  bool is_folder = false;
  bool is_special = false;  // whether it is neither a file nor a folder, such as a link
  bool is_encrypted = false;
  uint16_t method = 0;
  uint32_t checksum = 0;
  uint64_t compressed_bytes = 0;
  uint64_t num_bytes = 0;
  uint64_t offset = 0;  // of the local header
};

bool is_zip(std::span<const uint8_t> bytes);

// list_zip() and read_zip_entry() throw std::runtime_error with only the reason.
std::vector<ZipEntry> list_zip(std::span<const uint8_t> bytes);
// Passes the content to `take` in parts; checks its size and checksum at the end.
void read_zip_entry(std::span<const uint8_t> bytes, const ZipEntry& entry, const std::function<void(std::span<const uint8_t>)>& take);

}  // namespace trainer::datasets
