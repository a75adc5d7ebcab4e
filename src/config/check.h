#pragma once

#include "config/experiment.h"
#include "config/problems.h"

namespace trainer::config {

// Contradictions between keys that are each right by themselves. `root` tells where the keys stand.
void check(const Experiment& experiment, const Node& root, Problems& problems);

}  // namespace trainer::config
