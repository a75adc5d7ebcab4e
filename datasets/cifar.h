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

// How one of the sets is laid out in its files. Of a record's labels the last one is the class.
struct CifarLayout {
  std::string title;              // for messages
  std::vector<int> label_counts;  // how many values each label byte may have
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

// Finds the files, fetches them first where they are missing and options.download is set, maps them into memory and checks every
// record's labels. Files may hold any whole number of records. Throws DataError naming the file, what is wrong and the cure.
std::unique_ptr<input::Dataset> open_cifar(const CifarLayout& layout, const CifarOptions& options, Split split, Logger& logger);

}  // namespace trainer::datasets
