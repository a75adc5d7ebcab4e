#pragma once
// Image files whose labels are in CSV files. The classes are the labels of the training file: sorted by number if all are
// non-negative integers without leading zeros, else by their bytes.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "datasets/registry.h"

namespace trainer::datasets {

struct CsvOptions {
  std::string train;
  std::string validation;
  std::string root;
  void describe(KeyTable& keys);
};

// Reads the training file for its classes. If that fails, the factory tells the reason, and its open() throws that as a DataError.
data::DatasetFactory csv_factory(const CsvOptions& options);

// A CSV file in UTF-8 that gives each image its label. A line is `path,label`. A first line is a header if its path is no file and has no
// image's extension, and its label is "label" in any case or occurs in no other line; lines that repeat it are left out too. Quoting is
// that of RFC 4180; lines may end with CR LF, a byte order mark is skipped, and empty lines are ignored.

struct LabelledPath {
  int64_t line = 0;  // from 1
  std::string path;
  std::string label;
};

// Calls `use` with each line but a header. `folder`: to which relative paths refer. Throws std::runtime_error that names the file and the
// line, the value and what to do, also when the file cannot be read or has no line. An Error of `use` passes.
void read_label_table(const std::filesystem::path& file, const std::filesystem::path& folder,
                      const std::function<void(const LabelledPath&)>& use);

}  // namespace trainer::datasets
