#pragma once
// Image files whose targets are in CSV files: a class of each image, any number of classes, or numbers.
//
// A CSV file is in UTF-8, with a line for each image whose first column is its path. Quoting is that of RFC 4180; lines may end with CR LF,
// a byte order mark is skipped, and empty lines are ignored. The first line may name the columns (a header). It has to where columns are
// chosen, and where several columns are classes; otherwise it is one if its path is no file and has no image's extension, and, of labels,
// if its label is "label" in any case or occurs in no other line. Lines that repeat it are skipped.

#include <filesystem>
#include <string>
#include <vector>

#include "datasets/image_files.h"
#include "datasets/registry.h"

namespace trainer::datasets {

enum class CsvTargets {
  // A label. The classes are the labels of the training file: sorted by number if all are non-negative integers without leading zeros, else
  // by their bytes.
  kClass,
  // Any number of classes: each column that the header names is a class and has 1 or 0, and the classes have the order of the columns; or,
  // if it has anything else, one column lists the names of classes, separated by semicolons, and they are sorted as above.
  kClasses,
  kNumbers,  // one or more finite numbers, a column for each
};

struct CsvOptions {
  std::string train;
  std::string validation;
  std::string root;
  CsvTargets targets = CsvTargets::kClass;
  std::vector<std::string> columns = {};  // of the targets; empty: all after the path, but for group_column
  std::string group_column = {};          // of the groups of dataset.split
  ImageFileOptions files = {};
  void describe(KeyTable& keys);
};

// The fields of the first line; none if the file cannot be read.
std::vector<std::string> first_line_of(const std::filesystem::path& file);

// Reads the training file for its classes or columns. If that fails, the factory tells the reason, and its open() throws that as a
// DataError.
data::DatasetFactory csv_factory(const CsvOptions& options);

}  // namespace trainer::datasets
