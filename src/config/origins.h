#pragma once

#include <string>

#include "config/experiment.h"

namespace trainer::config {

// The resolved experiment file (to_yaml of config/load.h) with a comment behind each value that says where it comes from: "x.yaml:12", the
// command line, the default, or the data set. `experiment` is as it was loaded.
std::string to_yaml_with_origins(Experiment& experiment, const Registries& registries);

}  // namespace trainer::config
