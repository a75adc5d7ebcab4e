#pragma once
// The data sets that a configuration can name. A new one is a file beside this one and its name in CMakeLists.txt (docs/extending.md).

#include <functional>
#include <memory>

#include "base/log.h"
#include "config/key_table.h"
#include "input/dataset.h"

namespace trainer::datasets {

enum class Split { kTrain, kValidation };

// A data set that is configured but not opened yet.
struct DatasetFactory {
  input::DatasetInfo info;  // what the options alone determine, without looking at files
  // Downloads where asked to, opens and checks the files. Throws DataError naming the file and the cure.
  std::function<std::unique_ptr<input::Dataset>(Split split, Logger& logger)> open;
};

// make() touches no files and throws UsageError when options contradict each other.
using DatasetRegistry = config::Registry<DatasetFactory>;

const DatasetRegistry& dataset_registry();

}  // namespace trainer::datasets
