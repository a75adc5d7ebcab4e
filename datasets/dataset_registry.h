#pragma once
// The data sets that a configuration can name. To add one, add a file in this folder and its name in CMakeLists.txt (docs/extending.md).

#include "base/log.h"
#include "data/dataset.h"

namespace trainer::datasets {

using data::DatasetRegistry;

DatasetRegistry& dataset_registry();

}  // namespace trainer::datasets
