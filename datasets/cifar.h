#pragma once
// CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009) in their binary versions.
// A record is one byte for each kind of label and 3,072 bytes of pixels: the red, green and blue plane, 32 x 32, row by row.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "datasets/archive.h"
#include "datasets/registry.h"

namespace trainer::datasets {

// The file layout of one of the sets. The last label of a record is the class.
struct CifarLayout {
  std::string title;              // for messages
  std::vector<int> label_counts;  // the number of possible values of each label byte
  std::vector<std::string> train_files;
  std::vector<std::string> validation_files;
  ArchiveSource archive;  // archive.folder is the set's own folder
};

const CifarLayout& cifar10_layout();
const CifarLayout& cifar100_layout();  // the 100 fine labels

struct CifarOptions : config::Options {
  std::string root = "data";
  bool download = false;
  void describe(config::KeyTable& keys) override;
};

// Throws UsageError when no folder is named.
input::DatasetInfo cifar_info(const CifarLayout& layout, const CifarOptions& options);

// Finds the files (downloads them if they are missing and options.download is set), maps them into memory and checks every record's
// labels. A file may have any whole number of records. Throws a DataError that names the file, the problem and a remedy.
std::unique_ptr<input::Dataset> open_cifar(const CifarLayout& layout, const CifarOptions& options, Split split, Logger& logger);

}  // namespace trainer::datasets
