#pragma once

#include <functional>

#include "config/experiment.h"
#include "config/findings.h"
#include "datasets/registry.h"

namespace trainer::session {

// Completes the experiment (complete.h), and makes the checks that need to know the components: that network, loss, transforms and
// optimizer fit the data set and each other.
void check_components(config::Experiment& experiment, config::Findings& findings);
// The same for a data set that `make_dataset` gives, which is called when the section `dataset` is consistent.
void check_components(config::Experiment& experiment, config::Findings& findings,
                      const std::function<data::DatasetFactory()>& make_dataset);

}  // namespace trainer::session
