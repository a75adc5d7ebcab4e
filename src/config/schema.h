#pragma once
// The JSON Schema of an experiment file, generated from the tables, by which editors complete and check it.

#include <nlohmann/json.hpp>

#include "config/registries.h"

namespace trainer::config {

// Draft 7, which editors know. What depends on several keys, on other files or on the data set is checked by the program alone.
nlohmann::ordered_json schema(const Registries& registries);

}  // namespace trainer::config
