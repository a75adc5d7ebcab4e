#pragma once
// Image files whose targets are in CSV files: one class per image, any number of classes, or numbers.
// A CSV file is in UTF-8 and has a line for each image; the first column is the image's path. Quoting is that of RFC 4180. The first line
// may be a header with the names of the columns. A header is required if columns are chosen by name, or if several columns are classes.
// Otherwise the first line is a header if its first field is not a file and has no image extension; unless the targets are numbers, its
// second field must also be "label" in upper or lower case, or occur in no other line. Lines that repeat the header are skipped.

#include <filesystem>
#include <string>
#include <vector>

#include "datasets/dataset_registry.h"
#include "datasets/image_files.h"

namespace trainer::datasets {

enum class CsvTargets {
  // One label. The classes are the labels in the training file, sorted as numbers if all are non-negative integers without leading zeros,
  // else by their bytes.
  kClass,
  // Any number of classes, in one of two forms. Several target columns, or a single one that has a name and only the values 1 and 0: each
  // column is a class, with 1 for its images and 0 for the others. Otherwise: a single column with the names of the classes, separated by
  // `separator`; the classes are sorted as for kClass.
  kClasses,
  kNumbers,  // one or more finite numbers, each in its own column
};

struct CsvOptions {
  std::string train;
  std::string validation;
  std::string root;
  CsvTargets targets = CsvTargets::kClass;
  std::vector<std::string> columns = {};  // of the targets; empty: all after the path except group_column
  std::string separator = ";";            // of the classes in one column
  std::string group_column = {};          // of the groups of dataset.split
  ImageFileOptions files = {};
  void describe(KeyTable& keys);
};

// The fields of the first line that is not empty; none if the file cannot be read.
std::vector<std::string> first_line_of(const std::filesystem::path& file);

// Reads the classes or columns of the training file. If that fails, the factory's `missing` is the reason, and its open() throws it as a
// DataError.
data::DatasetFactory csv_factory(const CsvOptions& options);

}  // namespace trainer::datasets
