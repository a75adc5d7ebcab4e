#pragma once
// Every data set that a configuration can name. A new one is a file pair beside this one and a line in registry.cpp.

#include <functional>
#include <memory>
#include <vector>

#include "base/log.h"
#include "config/key_table.h"
#include "input/dataset.h"

namespace trainer::datasets {

enum class Split { kTrain, kValidation };

struct DatasetEntry {
  config::PartKind kind;
  // What the options alone say, without looking at files.
  std::function<input::DatasetInfo(const config::Options& options)> info;
  // Downloads where asked to, opens and checks the files. Throws DataError naming the file and the cure.
  std::function<std::unique_ptr<input::Dataset>(const config::Options& options, Split split, Logger& logger)> open;
};

const std::vector<DatasetEntry>& registry();

config::Family dataset_family();
// `part` must come from dataset_family().
input::DatasetInfo dataset_info(const config::Part& part);
std::unique_ptr<input::Dataset> open_dataset(const config::Part& part, Split split, Logger& logger);

}  // namespace trainer::datasets
