#pragma once
// Data sets that are published as one archive, or as a few files. They are downloaded, checked, unpacked, and installed completely or not
// at all.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "datasets/download.h"
#include "trainer/dataset.h"
#include "trainer/keys.h"

namespace trainer::datasets {

struct PublishedFile {
  std::string name;
  std::string md5;
};
struct PublishedSource {
  std::string title;                      // for messages
  std::string url;                        // of the archive; of the folder of `files`, with a slash at its end
  std::string md5 = {};                   // of the archive, which is a zip file, or a tar file, plain or compressed with gzip
  std::vector<PublishedFile> files = {};  // if there is no archive
  std::string folder;                     // that is installed, such as MNIST/raw; the top folder of an archive
  DownloadLimits limits = {};

  bool is_archive() const { return files.empty(); }
};

// Installs root/folder; does nothing if it exists. When several processes call this for the same folder, one makes it and the others wait.
// After a failure, `root` has its previous content; leftovers of a killed process are removed. Throws DataError with the URL, the reason
// and what to do, and Error with ExitCode::kStopped after a stop request.
void fetch_published(const PublishedSource& source, const std::filesystem::path& root, Logger& logger);

// The options of a data set that can be downloaded.
struct PublishedOptions {
  std::string root = "data";
  bool download = false;

  // The data set's folder in `root`, or `root` itself if it contains any file of these names.
  std::optional<std::filesystem::path> find(const PublishedSource& source, const std::vector<std::string>& names) const;
  // The same, after a download if it is missing and `download` is set. Throws DataError with explain_absence().
  std::filesystem::path locate(const PublishedSource& source, const std::vector<std::string>& names, Logger& logger) const;
  std::string explain_absence(const PublishedSource& source) const;

 protected:
  // `own_folders`: the names of the data set's folders, for the documentation of `root`; `more`: text that is appended to that
  // documentation.
  void describe_place(KeyTable& keys, const std::string& own_folders, const std::string& more = "");
};

// A data set of images of one size, which are kept in memory.
struct PublishedImages {
  PublishedSource source;
  std::vector<std::string> names;  // of its files
  data::DatasetInfo info;
  data::SplitSizes sizes;
  // Opens the files in `folder`, whose numbers of images may differ from `sizes`, except 0. Throws DataError with the file, the problem and
  // what to do.
  std::function<std::unique_ptr<data::Dataset>(const std::filesystem::path& folder, data::Split split)> open;
};
data::DatasetFactory published_factory(const PublishedImages& images, const PublishedOptions& options);

// Throws DataError: "FILE: WHAT; REMEDY".
[[noreturn]] void refuse_published_file(const PublishedSource& source, const std::filesystem::path& file, const std::string& what);

}  // namespace trainer::datasets
