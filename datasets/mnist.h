#pragma once
// MNIST (LeCun, Cortes, Burges, 1998) and FashionMNIST (Xiao, Rasul, Vollgraf, 2017) in their IDX files, plain or compressed by gzip. A
// file begins with a magic number and the lengths of its dimensions, each a big-endian number of 32 bits; then follow the bytes, row by
// row.

#include <memory>
#include <string>
#include <vector>

#include "datasets/archive.h"
#include "datasets/registry.h"

namespace trainer::datasets {

struct MnistLayout {
  std::string title;  // for messages
  std::vector<std::string> class_names;
  FilesSource source;
};

const MnistLayout& mnist_layout();
const MnistLayout& fashion_mnist_layout();

struct MnistOptions : PublishedOptions {
  void describe(KeyTable& keys);
};

data::DatasetInfo mnist_info(const MnistLayout& layout);

// Finds the files (downloads them if they are missing and options.download is set), loads them into memory and checks their headers and
// all labels. The number of images is free. Throws DataError that names the file, the problem and the remedy.
std::unique_ptr<data::Dataset> open_mnist(const MnistLayout& layout, const MnistOptions& options, data::Split split, Logger& logger);

// `layout` must outlive it.
data::DatasetFactory mnist_factory(const MnistLayout& layout, const MnistOptions& options);

}  // namespace trainer::datasets
