#pragma once
// The data sets that a configuration can name. To add one, add a file in this folder and its name in CMakeLists.txt (docs/extending.md).

#include <functional>
#include <memory>

#include "base/log.h"
#include "config/key_table.h"
#include "input/dataset.h"

namespace trainer::datasets {

enum class Split { kTrain, kValidation };

// A data set that is configured but not yet opened.
struct DatasetFactory {
  input::DatasetInfo info;  // determined by the options only, without reading files
  // Downloads the files if configured, opens and checks them. Throws DataError that names the file and the remedy.
  std::function<std::unique_ptr<input::Dataset>(Split split, Logger& logger)> open;
};

// make() touches no files.
using DatasetRegistry = config::Registry<DatasetFactory>;

const DatasetRegistry& dataset_registry();

}  // namespace trainer::datasets
