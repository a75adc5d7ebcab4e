#pragma once
// CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009) in their binary versions. A record has
// one byte for each kind of label, then 3,072 bytes of pixels: the red, green and blue planes of 32 x 32, row by row.

#include <string>
#include <vector>

#include "datasets/archive.h"
#include "datasets/dataset_registry.h"

namespace trainer::datasets {

// The file layout of a data set. The last label of a record is the class.
struct CifarLayout {
  std::vector<int> label_counts;  // number of valid values of each label byte
  std::vector<std::string> class_names;
  std::vector<std::string> train_files;
  std::vector<std::string> validation_files;
  PublishedSource source;
};

const CifarLayout& cifar10_layout();
const CifarLayout& cifar100_layout();  // the 100 fine labels

struct CifarOptions : PublishedOptions {
  void describe(KeyTable& keys);
};

// Maps the files into memory and checks every record's labels. `layout` must outlive the factory.
data::DatasetFactory cifar_factory(const CifarLayout& layout, const CifarOptions& options);

}  // namespace trainer::datasets
