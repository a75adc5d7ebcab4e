#pragma once
// Image files whose labels are in CSV files (label_table.h). The classes are the labels of the training file: sorted by number if all are
// non-negative integers without leading zeros, else by their bytes.

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

}  // namespace trainer::datasets
