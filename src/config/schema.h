#pragma once
// The JSON Schema of an experiment file, generated from the tables; editors use it to complete and check the file.

#include <nlohmann/json.hpp>

#include "config/registries.h"

namespace trainer::config {

// Returns a schema of draft 7, which editors support. Rules that depend on several keys, on other files (a base may contain a missing key)
// or on the data set are not in it; only the program checks them.
nlohmann::ordered_json schema(const Registries& registries);

}  // namespace trainer::config
