#pragma once

#include "config/experiment.h"
#include "config/findings.h"

namespace trainer::session {

// Checks that need to know the components: that network, loss, transforms and optimizer fit the data set and each other. Reads no file.
void check_components(const config::Experiment& experiment, config::Findings& findings);

}  // namespace trainer::session
