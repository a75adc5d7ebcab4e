#pragma once
// The networks that a configuration can name. To add one, add a file to this folder and its name to CMakeLists.txt (docs/extending.md).

#include "config/key_table.h"
#include "models/model.h"

namespace trainer::models {

// make() throws UsageError when options contradict each other.
using ModelRegistry = config::Registry<std::shared_ptr<Model>, const BuildContext&>;

const ModelRegistry& model_registry();

}  // namespace trainer::models
