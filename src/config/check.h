#pragma once

#include "config/experiment.h"
#include "config/problems.h"

namespace trainer::config {

// Reports contradictions between keys that are each valid. `root` gives the positions of the keys.
void check(const Experiment& experiment, const Node& root, Problems& problems);

}  // namespace trainer::config
