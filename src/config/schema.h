#pragma once
// The JSON Schema of an experiment file, generated from the tables; editors use it to complete and check the file.

#include <nlohmann/json.hpp>

#include "config/registries.h"

namespace trainer::config {

// Draft 7, which editors support. Only the program checks rules that depend on several keys, on other files or on the data set.
nlohmann::ordered_json schema(const Registries& registries);

}  // namespace trainer::config
