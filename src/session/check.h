#pragma once

#include "config/experiment.h"
#include "config/findings.h"

namespace trainer::session {

// Completes the experiment (complete.h), and makes the checks that need to know the components: that network, loss, transforms and
// optimizer fit the data set and each other.
void check_components(config::Experiment& experiment, config::Findings& findings);

}  // namespace trainer::session
