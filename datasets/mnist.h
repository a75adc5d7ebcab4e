#pragma once
// MNIST (LeCun, Cortes, Burges, 1998) and FashionMNIST (Xiao, Rasul, Vollgraf, 2017) as IDX files, plain or compressed with gzip. A file
// begins with a magic number and the lengths of its dimensions, each a big-endian 32-bit number; the bytes follow, row by row.

#include <string>
#include <vector>

#include "datasets/archive.h"
#include "datasets/dataset_registry.h"

namespace trainer::datasets {

struct MnistLayout {
  std::vector<std::string> class_names;
  PublishedSource source;
};

const MnistLayout& mnist_layout();
const MnistLayout& fashion_mnist_layout();

struct MnistOptions : PublishedOptions {
  void describe(KeyTable& keys);
};

// Loads the files into memory and checks their headers and all labels. `layout` must outlive the factory.
data::DatasetFactory mnist_factory(const MnistLayout& layout, const MnistOptions& options);

}  // namespace trainer::datasets
